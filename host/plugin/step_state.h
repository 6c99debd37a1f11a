// What is known about one optimizer step, the same on all ranks. Numbers that are not known yet are NaN.
#pragma once
#include <cstdint>
#include <limits>

namespace mantissa {

enum class Decision { step = 0, skip = 100, abort = 200 };

struct StepState {
  uint64_t index = 0;  ///< optimizer steps since the start of the run, taken or skipped
  uint32_t num_microbatches = 1;
  bool found_inf = false;  ///< after unscale
  double loss_scale = 1;
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< nats per target, without the scale
  double learning_rate = 0;
  double total_norm = std::numeric_limits<double>::quiet_NaN();  ///< after clip: the norm before clipping
  Decision decision = Decision::step;
};

}  // namespace mantissa
