// A shipped plugin on a case's root, and the part of the trainer's step that comes after backward.
#pragma once
#include <memory>
#include <string>

#include "case_root.h"
#include "grad/gradients.h"
#include "optim/optimizer.h"
#include "plugin/precision.h"

namespace mantissa::cases {

/// A config that asks for the plugin `name` with `options`, a list of [key, value].
Config config_with(const std::string& name, std::vector<OptionValue> options = {});
/// "max_norm" and "norm_type" of `settings`; a null max_norm clips nothing, as without both.
ClipConfig clip_of(const json& settings);

class PluginAtWork {
 public:
  /// Before sharding: create and plan.
  PluginAtWork(const Config& config, const ModulePlan& plan, const World& world);

  Precision& precision() { return *precision_; }

  struct Step {
    StepState state;
    DeferredScaling scaling;  // what the optimizer is to apply
  };
  /// The rest of a step whose gradients lie in `root`, reduced: exchange, unscale, clip, decide. error_if_nonfinite is
  /// false. `state.loss_scale` is what the loss was multiplied by.
  Step after_backward(Root& root, StepState state, const ClipConfig& clip);

 private:
  World world_;
  std::unique_ptr<Precision> precision_;
};

}  // namespace mantissa::cases
