// What a plugin costs: a slot called through the host's wrapper, and loading one (vetting, hash, mapping, create,
// plan).
#include <filesystem>
#include <memory>

#include <benchmark/benchmark.h>
#include <torch/nn/modules/linear.h>

#include "comm/world.h"
#include "fsdp/root.h"
#include "grad/gradients.h"
#include "plugin/precision.h"

namespace mantissa {
namespace {

const std::filesystem::path kPlugin = std::filesystem::path(MANTISSA_BUILD_DIR) / "plugins/libmantissa-fsdp_norm.so";

Config config_with_clip() {
  Config config;
  config.clip.kind = ClipKind::norm;
  config.clip.limit = 1;
  return config;
}

std::unique_ptr<Precision> load(const Config& config, const ModulePlan& plan, World& world) {
  ConfiguredPlugin plugin = load_configured_plugin(kPlugin, config);
  return std::make_unique<Precision>(std::move(plugin.library), std::move(plugin.options), plan, world.impl().exchange,
                                     config.plugins);
}

// A plugin at work on a small root of one rank. The norm is known, as after the exchange, so no slot communicates.
struct Fixture {
  Config config = config_with_clip();
  World world{std::make_shared<World::Impl>(Rendezvous{}, std::chrono::seconds(20))};
  std::shared_ptr<torch::nn::LinearImpl> module = std::make_shared<torch::nn::LinearImpl>(8, 8);
  ModulePlan plan = plan_units(*module, false, {});
  std::unique_ptr<Precision> precision = load(config, plan, world);
  std::shared_ptr<Root> root = Root::shard(module, plan, world, {});
  Gradients gradients{*root};
  StepState step;

  Fixture() {
    precision->attach(*root, gradients);
    step.loss_scale = 1;
  }
};

void Slot_Clip(benchmark::State& state) {
  Fixture fixture;
  const PartialNorm agreed{2, 2.0, 1.0, 0};
  for (auto _ : state) {
    fixture.gradients.begin_step(agreed);
    benchmark::DoNotOptimize(fixture.precision->clip(fixture.step, fixture.config.clip, agreed.value()));
  }
}

void PluginLoad(benchmark::State& state) {
  const Config config = config_with_clip();
  World world{std::make_shared<World::Impl>(Rendezvous{}, std::chrono::seconds(20))};
  torch::nn::LinearImpl module(8, 8);
  const ModulePlan plan = plan_units(module, false, {});
  for (auto _ : state) benchmark::DoNotOptimize(load(config, plan, world));
}

BENCHMARK(Slot_Clip);
BENCHMARK(PluginLoad)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace mantissa
