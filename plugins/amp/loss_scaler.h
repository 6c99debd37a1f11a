// Dynamic loss scaling, as torch.amp.GradScaler does it: halve after an overflow, double after many steps without one.
// Pure arithmetic: no host, no gradients.
#pragma once
#include <cstdint>

struct LossScalerOptions {
  double init_scale = 65536;       // of the first step
  double growth_factor = 2;        // > 1
  double backoff_factor = 0.5;     // in (0, 1)
  int64_t growth_interval = 2000;  // steps in a row without found_inf before the scale grows
  double min_scale = 1;            // the scale never falls below it
};

class LossScaler {
 public:
  // What the next step depends on.
  struct State {
    double scale = 1;     // that multiplies the loss; a float32
    int64_t tracker = 0;  // steps in a row without found_inf since the scale last changed
    int64_t skipped = 0;  // steps with found_inf so far
  };

  explicit LossScaler(const LossScalerOptions& options);

  double scale() const { return state_.scale; }
  const State& state() const { return state_; }
  // False, and nothing is changed, if no scaler can be in such a state.
  bool restore(const State& state);

  // A step is over. The scale falls with found_inf and grows at every growth_interval-th step without, unless it would
  // leave float32.
  void update(bool found_inf);

 private:
  LossScalerOptions options_;
  State state_;
};
