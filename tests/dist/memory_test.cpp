// It really shards: 67 million parameters over 4 ranks, counted by the engine and by the operating system.
#include <fstream>

#include <malloc.h>
#include <torch/torch.h>

#include "fsdp/root.h"
#include "mantissa/fully_shard.h"
#include "optim/optimizer.h"
#include "support/ranks.h"

namespace mantissa {
namespace {

// A line of /proc/self/status, in bytes.
double status_bytes(const std::string& name) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name + ":")) return std::stod(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

void reset_peak_of_process() { std::ofstream("/proc/self/clear_refs") << "5"; }

TEST(Memory, SixtySevenMillionParametersOnFourRanks_StayNearThreeShards) {
  test::on_ranks(4, [](const World& world) {
    constexpr int64_t kWidth = 1295, kLayers = 40, kRows = 4;
    auto sequential = torch::nn::Sequential();
    for (int64_t i = 0; i < kLayers; ++i) sequential->push_back(torch::nn::Linear(kWidth, kWidth));
    auto model = fully_shard(sequential, world);
    const double unit_bytes = 4.0 * kWidth * (kWidth + 1), total = unit_bytes * kLayers, shard = total / world.size();
    ASSERT_GT(total / 4, 67e6);
    EXPECT_EQ(stats(model.root()).gathered_bytes, 0u);
    malloc_trim(0);
    const double before = status_bytes("VmRSS");
    reset_peak_of_process();
    reset_peak(model.root());

    OptimizerConfig config;
    config.kind = OptimizerKind::sgd;
    config.weight_decay = 0;
    Optimizer optimizer(model.root(), config);
    for (int step = 0; step < 2; ++step) {
      model(torch::ones({kRows, kWidth})).pow(2).mean().backward();
      optimizer.step(1e-3, {});
      model.root().publish();
      model.root().clear_gradients();
      EXPECT_EQ(stats(model.root()).gathered_bytes, 0u) << "between steps";
    }
    EXPECT_LE(stats(model.root()).peak_units, 3) << "root and two units";
    EXPECT_LE(static_cast<double>(stats(model.root()).peak_gathered_bytes), 2.1 * unit_bytes);
    const double activations = 4.0 * kRows * kWidth * kLayers * 2;
    const double growth = status_bytes("VmHWM") - before;
    EXPECT_LT(growth, 3 * shard + 6 * unit_bytes + activations + 20e6);
    if (world.rank() == 0) {
      std::printf("peak memory grew by %.1f MB; shard %.1f MB, unit %.1f MB, limit %.1f MB\n", growth / 1e6,
                  shard / 1e6, unit_bytes / 1e6, (3 * shard + 6 * unit_bytes + activations + 20e6) / 1e6);
    }
  });
}

}  // namespace
}  // namespace mantissa
