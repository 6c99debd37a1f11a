// fsdp_value - clamps every gradient element to [-value, value].
//
// Clamping needs no other rank: each clamps its own shards. Numbers are float32 unless the options ask for bfloat16 in
// computation or on the wire; the shards and the optimizer stay in float32.
#include <mantissa/precision.hpp>

namespace {

constexpr mts_option_spec kOptions[] = {
    mts::string_spec("param_dtype", "\"float32\"", "float32|bfloat16",
                     "number format in which parameters are gathered and computed with"),
    mts::string_spec("reduce_dtype", "\"float32\"", "float32|bfloat16", "number format of gradients on the wire"),
};

class FsdpValue final : public mts::Precision {
 public:
  using mts::Precision::Precision;

  void plan(mts_plan& plan) override {
    plan.storage_dtype = MTS_F32;
    plan.param_dtype = dtype_option("param_dtype");
    plan.reduce_dtype = dtype_option("reduce_dtype");
  }

  double clip(const mts_step&, const mts_clip& clip) override {
    const double total_norm = grad_norm(clip.norm_type);  // known from the reduction: nothing is sent
    if (clip.kind == MTS_CLIP_VALUE) clip_grad_value(clip.limit);
    return total_norm;
  }

 private:
  // The host has checked the value against the choices above.
  mts_dtype dtype_option(const char* key) const { return string_option(key) == "bfloat16" ? MTS_BF16 : MTS_F32; }
};

}  // namespace

MTS_EXPORT_PRECISION(FsdpValue, "fsdp_value", "1.0.0", "Mantissa", "clamps every gradient element, no communication",
                     mts::clips(MTS_CLIP_VALUE), kOptions);
