// Runs of steps with a dynamic loss scaler: the plugin amp with float16, the engine's reduction and the optimizer.
#include <cmath>

#include "checks.h"
#include "plugin_at_work.h"

namespace mantissa::cases {
namespace {

// The scaler of a case has no floor.
constexpr double kNoFloor = 1.1754943508222875e-38;

Config amp_config(const json& scaler) {
  return config_with("amp", {{"dtype", std::string("float16"), "case"},
                             {"init_scale", real(scaler.at("init_scale")), "case"},
                             {"growth_factor", real(scaler.at("growth_factor")), "case"},
                             {"backoff_factor", real(scaler.at("backoff_factor")), "case"},
                             {"growth_interval", scaler.at("growth_interval").get<int64_t>(), "case"},
                             {"min_scale", kNoFloor, "case"}});
}

OptimizerConfig sgd_config(const json& optimizer) {
  OptimizerConfig config;
  config.kind = OptimizerKind::sgd;
  config.lr = real(optimizer.at("lr"));
  config.weight_decay = 0;
  return config;
}

// What this rank holds after backward: gradients of the scaled loss, rounded to local_dtype.
json scaled_gradients(const json& step, int rank, double scale, at::ScalarType local_dtype) {
  if (step.contains("scaled_grads_by_rank")) return step.at("scaled_grads_by_rank").at(static_cast<size_t>(rank));
  json scaled = step.at("true_grads_by_rank").at(static_cast<size_t>(rank));
  for (auto& [name, values] : scaled.items()) {
    if (values.is_null()) continue;
    at::Tensor product = (tensor_of(values, at::kFloat) * scale).to(local_dtype).to(at::kDouble);
    values = json::array();
    for (int64_t i = 0; i < product.numel(); ++i) {
      const double value = product[i].item<double>();
      values.push_back(std::isfinite(value) ? json(value)
                       : std::isnan(value)  ? json("nan")
                       : value > 0          ? json("inf")
                                            : json("-inf"));
    }
  }
  return scaled;
}

// The gradients as the optimizer sees them.
std::string check_applied(CaseRoot& built, const PluginAtWork::Step& step, const json& want, double rtol) {
  std::vector<at::Tensor> kept = built.gradients();
  for (FlatParameter* flat : built.root().trainable()) {
    const at::Tensor gradient = flat->shard().grad();
    apply(std::span<float>(gradient.data_ptr<float>(), static_cast<size_t>(gradient.numel())), step.scaling);
  }
  std::string problem;
  for (const auto& [name, values] : want.items()) {
    if (!problem.empty() || values.is_null()) continue;
    problem = built.compare_gradient(name, values_of(values), rtol);
  }
  for (size_t i = 0; i < kept.size(); ++i) at::Tensor(built.root().trainable()[i]->shard().grad()).copy_(kept[i]);
  return problem.empty() ? "" : "applied gradient " + problem;
}

}  // namespace

std::string check_loss_scale(const json& c, const World& world) {
  const json params = with_anchor(c.at("params"));
  PluginAtWork amp(amp_config(c.at("scaler")), CaseRoot::plan_of(params), world);
  ShardOptions options;
  options.reduce_dtype = dtype_of(c.at("reduce_dtype"));
  CaseRoot built(params, world, options);
  const OptimizerConfig optimizer_config = sgd_config(c.at("optimizer"));
  Optimizer optimizer(built.root(), optimizer_config);
  const at::ScalarType local_dtype = dtype_of(c.at("local_dtype"));

  for (size_t i = 0; i < c.at("steps").size(); ++i) {
    const json& asked = c.at("steps")[i];
    const json& want = c.at("expect").at(i);
    const double rtol = real(want.at("rtol")), norm_rtol = real(want.at("norm_rtol"));
    StepState state;
    state.index = i;
    state.loss_scale = amp.precision().loss_scale(state);
    // The case's gradients carry the scale already.
    built.backward(scaled_gradients(asked, world.rank(), state.loss_scale, local_dtype), 1);
    const PluginAtWork::Step step = amp.after_backward(built.root(), state, clip_of(asked));

    const bool skipped = step.state.decision != Decision::step;
    const std::vector<at::Tensor> before = built.values();
    std::string problem = difference("scale before", state.loss_scale, real(want.at("scale_before")), 0);
    if (problem.empty() && skipped != want.at("skipped").get<bool>())
      problem = std::string("skipped got ") + (skipped ? "true" : "false") + ", want " + want.at("skipped").dump();
    if (problem.empty())
      problem = difference("total_norm", step.state.total_norm, real(want.at("total_norm")), norm_rtol);
    if (problem.empty() && !skipped) {
      problem = check_applied(built, step, want.at("applied_grads"), rtol);
      optimizer.step(optimizer_config.lr, step.scaling);
    }
    amp.precision().update(step.state);
    built.root().publish();
    built.root().clear_gradients();
    if (problem.empty())
      problem = difference("growth tracker", amp.precision().take_metrics().at("amp.growth_tracker"),
                           real(want.at("tracker_after")), 0);
    if (problem.empty())
      problem = difference("scale after", amp.precision().loss_scale(step.state), real(want.at("scale_after")), 0);
    if (problem.empty() && skipped && !same_bits(before, built.values())) problem = "a skipped step changed parameters";
    for (const auto& [name, values] : want.at("params_after").items()) {
      if (problem.empty()) problem = built.compare_value(name, values_of(values), rtol);
    }
    if (!problem.empty()) return "step " + std::to_string(i) + ": " + problem;
  }
  return "";
}

}  // namespace mantissa::cases
