#include "loss_scaler.h"

#include <algorithm>
#include <cmath>

namespace {

// The loss is multiplied in float32, so a scale is a float32.
double as_float(double value) { return static_cast<double>(static_cast<float>(value)); }

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options) : options_(options) {
  state_.scale = std::max(as_float(options.init_scale), as_float(options.min_scale));
}

bool LossScaler::restore(const State& state) {
  if (!(state.scale > 0) || !std::isfinite(as_float(state.scale)) || state.tracker < 0 || state.skipped < 0)
    return false;
  state_ = state;
  state_.scale = std::max(as_float(state.scale), as_float(options_.min_scale));
  state_.tracker %= options_.growth_interval;  // the interval may be shorter than where the state comes from
  return true;
}

void LossScaler::update(bool found_inf) {
  if (found_inf) {
    state_.scale = std::max(as_float(state_.scale * options_.backoff_factor), as_float(options_.min_scale));
    state_.tracker = 0;
    ++state_.skipped;
    return;
  }
  if (++state_.tracker < options_.growth_interval) return;
  const double grown = as_float(state_.scale * options_.growth_factor);
  if (std::isfinite(grown)) state_.scale = grown;
  state_.tracker = 0;
}
