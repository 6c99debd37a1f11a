// The optimizer over the flat shards of a root: this rank's pieces and their state, nothing else.
#pragma once
#include <memory>
#include <vector>

#include "config/config.h"
#include "fsdp/root.h"
#include "grad/scaling.h"
#include "optim/decay.h"

namespace mantissa {

/// Buffers of a shard's size that the optimizer keeps for each: 2 for adamw, 1 or 0 for sgd.
int64_t num_optimizer_buffers(const OptimizerConfig& config);

class Optimizer {
 public:
  Optimizer(Root& root, const OptimizerConfig& config);

  /// Updates every trainable shard from its reduced gradient, scaled as `scaling` says; gradients are left as they are.
  /// State is kept in float32, or float64 for shards in it.
  void step(double lr, const DeferredScaling& scaling);

  int64_t taken_steps() const { return taken_steps_; }
  /// What the optimizer keeps for each element of each shard, in the order of Root::trainable.
  std::vector<at::Tensor> buffers() const;

 private:
  struct State {
    FlatParameter* flat;
    std::vector<at::Tensor> buffers;  // adamw: exp_avg, exp_avg_sq; sgd: momentum, if any
    std::vector<DecayStretch> stretches;
  };
  template <class T>
  void step_stretch(State& state, const DecayStretch& stretch, double lr, const DeferredScaling& scaling);

  OptimizerConfig config_;
  std::vector<State> states_;
  int64_t taken_steps_ = 0;
};

}  // namespace mantissa
