// Micro-batches: reduced at each, or only at the last, then clipped once.
#include <cmath>

#include <ATen/ops/scalar_tensor.h>

#include "checks.h"
#include "plugin_at_work.h"

namespace mantissa::cases {
namespace {

// True if every gradient divided by the number of micro-batches is still a value of `dtype`: then the case can run with
// parameters of that type.
bool divides_exactly(const json& windows, at::ScalarType dtype) {
  for (const json& window : windows) {
    const auto count = static_cast<double>(window.size());
    for (const json& microbatch : window) {
      for (const json& by_name : microbatch) {
        for (const json& values : by_name) {
          if (values.is_null()) continue;
          for (const double value : values_of(values)) {
            const double part = value / count;
            const double rounded = at::scalar_tensor(part, dtype).item<double>();
            if (std::isfinite(part) && (rounded != part || rounded * count != value)) return false;
          }
        }
      }
    }
  }
  return true;
}

std::string check_window(const json& c, const json& window, const json& want, CaseRoot& built, PluginAtWork& plugin,
                         const World& world) {
  const double rtol = real(want.at("rtol")), norm_rtol = real(want.at("norm_rtol"));
  for (size_t m = 0; m < window.size(); ++m) {
    built.root().set_last_microbatch(m + 1 == window.size());
    built.backward(window[m].at(static_cast<size_t>(world.rank())), 1.0 / static_cast<double>(window.size()));
  }
  if (window.size() != want.at("micro_batches").get<size_t>())
    return "micro_batches got " + std::to_string(window.size()) + ", want " + want.at("micro_batches").dump();
  std::string problem;
  for (const auto& [name, values] : want.at("reduced_grads").items()) {
    if (problem.empty()) problem = built.compare_gradient(name, values_of(values), rtol);
  }
  if (!problem.empty()) return "reduced gradient " + problem;

  const PluginAtWork::Step step = plugin.after_backward(built.root(), {}, clip_of(c));
  problem = difference("total_norm", step.state.total_norm, real(want.at("total_norm")), norm_rtol);
  if (!problem.empty()) return problem;
  for (FlatParameter* flat : built.root().trainable()) {
    const at::Tensor gradient = flat->shard().grad();
    apply(std::span<float>(gradient.data_ptr<float>(), static_cast<size_t>(gradient.numel())), step.scaling);
  }
  for (const auto& [name, values] : want.at("clipped_grads").items()) {
    if (problem.empty()) problem = built.compare_gradient(name, values_of(values), rtol);
  }
  built.root().clear_gradients();
  return problem.empty() ? "" : "clipped gradient " + problem;
}

}  // namespace

std::string check_accumulate(const json& c, const World& world) {
  const json params = with_anchor(c.at("params"));
  const at::ScalarType local_dtype = dtype_of(c.at("local_dtype"));
  for (const bool every : {true, false}) {
    PluginAtWork plugin(config_with("fsdp_norm"), CaseRoot::plan_of(params), world);
    ShardOptions options;
    options.reduce_dtype = dtype_of(c.at("reduce_dtype"));
    options.param_dtype = divides_exactly(c.at("windows"), local_dtype) ? local_dtype : at::kFloat;
    options.reduce_every_microbatch = every;
    CaseRoot built(params, world, options);
    for (size_t w = 0; w < c.at("windows").size(); ++w) {
      const std::string problem = check_window(c, c.at("windows")[w], c.at("expect").at(w), built, plugin, world);
      if (problem.empty()) continue;
      return "window " + std::to_string(w) + (every ? "" : ", reduced at its end") + ": " + problem;
    }
  }
  return "";
}

}  // namespace mantissa::cases
