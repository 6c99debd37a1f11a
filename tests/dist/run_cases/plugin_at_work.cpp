#include "plugin_at_work.h"

#include <limits>

#include "plugin/library.h"

namespace mantissa::cases {

Config config_with(const std::string& name, std::vector<OptionValue> options) {
  Config config;
  config.precision.plugin = name;
  config.precision.options = std::move(options);
  config.clip.kind = ClipKind::none;
  return config;
}

ClipConfig clip_of(const json& settings) {
  ClipConfig clip;
  clip.error_if_nonfinite = false;
  if (!settings.contains("norm_type")) return clip;
  clip.kind = ClipKind::norm;
  clip.limit =
      settings.at("max_norm").is_null() ? std::numeric_limits<double>::infinity() : real(settings.at("max_norm"));
  clip.norm_type = real(settings.at("norm_type"));
  return clip;
}

PluginAtWork::PluginAtWork(const Config& config, const ModulePlan& plan, const World& world) : world_(world) {
  const std::string file = MANTISSA_BUILD_DIR "/plugins/libmantissa-" + config.precision.plugin + ".so";
  ConfiguredPlugin plugin = load_configured_plugin(file, config);
  precision_ = std::make_unique<Precision>(std::move(plugin.library), std::move(plugin.options), plan,
                                           world_.impl().exchange, config.plugins);
}

PluginAtWork::Step PluginAtWork::after_backward(Root& root, StepState state, const ClipConfig& clip) {
  Gradients gradients(root);
  precision_->attach(root, gradients);
  Packet packet;
  packet.loss_scale = state.loss_scale;
  packet.set_norm(root.partial_norm());
  const PartialNorm agreed = root.exchange().agree(Operation::backward, packet).norm;
  if (precision_->formats().scales_loss) {
    gradients.begin_scaled_step(agreed, state.loss_scale);
  } else {
    gradients.begin_step(agreed);
  }
  state.found_inf = precision_->unscale(state);
  const double norm = gradients.norm(clip.kind == ClipKind::norm ? clip.norm_type : 2);
  state.total_norm = precision_->clip(state, clip, norm);
  state.decision = precision_->decide(state);
  return {state, gradients.scaling()};
}

}  // namespace mantissa::cases
