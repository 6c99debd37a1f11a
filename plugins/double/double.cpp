// double - float64 everywhere: parameters, inputs, gradients on the wire, optimizer state. For reference runs: what
// differs from it is rounding.
#include <mantissa/precision.hpp>

namespace {

class Double final : public mts::Precision {
 public:
  using mts::Precision::Precision;

  // Clipping is left to the host: it does what [clip] asks, in float64.
  void plan(mts_plan& plan) override {
    plan.storage_dtype = plan.param_dtype = plan.reduce_dtype = plan.buffer_dtype = plan.input_dtype = MTS_F64;
  }
};

}  // namespace

MTS_EXPORT_PRECISION(Double, "double", "1.0.0", "Mantissa", "float64 everywhere, for reference runs",
                     mts::clips(MTS_CLIP_NORM, MTS_CLIP_VALUE), mts::NoOptions());
