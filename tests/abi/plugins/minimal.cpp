// The least that the C++ kit allows: a plan, no options, no slot of its own.
#include <mantissa/precision.hpp>

namespace {

class Minimal : public mts::Precision {
 public:
  using Precision::Precision;
  void plan(mts_plan& plan) override { plan.storage_dtype = MTS_F64; }
};

}  // namespace

MTS_EXPORT_PRECISION(Minimal, "minimal", "1.0.0", "tests", "float64 shards", mts::clips(), mts::NoOptions());
