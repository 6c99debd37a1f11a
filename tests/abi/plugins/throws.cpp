// A plugin on the C++ kit that throws from every slot, each time something else.
#include <mantissa/precision.hpp>

#include <new>
#include <stdexcept>

namespace {

constexpr mts_option_spec kOptions[] = {
    mts::bool_spec("refuse", "false", "whether create fails"),
    mts::int_spec("count", "3", 0, 10, "a number"),
    mts::float_spec("factor", "0.5", 0, mts::kUnbounded, "a factor"),
    mts::string_spec("mode", "\"what\"", "what|memory|status|unknown", "what clip throws"),
};

class Throws : public mts::Precision {
 public:
  Throws(const mts_host* host, mts_root root) : Precision(host, root), mode_(string_option("mode")) {
    if (bool_option("refuse")) throw std::invalid_argument("told to refuse");
  }

  void plan(mts_plan& plan) override { plan.reserved = static_cast<int32_t>(int_option("count")); }

  double clip(const mts_step&, const mts_clip& clip) override {
    if (mode_ == "memory") throw std::bad_alloc();
    if (mode_ == "status") throw mts::Failure(MTS_UNSUPPORTED, "not for me");
    if (mode_ == "unknown") throw 7;
    if (clip.kind == MTS_CLIP_NORM) return clip_grad_norm(clip.limit * float_option("factor"), clip.norm_type);
    throw std::runtime_error("went wrong in clip");
  }

  void update(const mts_step&) override { metric("declared", float_option("undeclared")); }

 private:
  std::string mode_;
};

}  // namespace

MTS_EXPORT_PRECISION(Throws, "throws", "0.2.0", "tests", "throws from every slot",
                     mts::clips(MTS_CLIP_NORM, MTS_CLIP_VALUE), kOptions);
