// Ranks that train a small model with the library; in the third step one of them misbehaves.
//
//   faulty_ranks FAULT VICTIM RANKS TIMEOUT_S
//
// RANKS = 0: this process is one rank by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as a user's own program is.
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "base/error.h"
#include "comm/launcher.h"
#include "comm/terminate.h"
#include "comm/world.h"
#include "mantissa/clip.h"
#include "mantissa/fully_shard.h"
#include "mantissa/unit.h"

namespace {

namespace nn = torch::nn;
using torch::Tensor;

constexpr int kFaultyStep = 2;
constexpr int kSteps = 1'000'000;

// What the victim does. Set in its third step only.
std::string fault_now;

void loop_for_ever() {
  volatile bool forever = true;
  while (forever) {
  }
}

// How a rank misbehaves in the forward of a block, by name.
const std::map<std::string, std::function<void(Tensor&)>> kInForward{
    {"throws_in_forward", [](Tensor&) { throw std::runtime_error("thrown in forward"); }},
    {"throws_in_hook",
     [](Tensor& x) {
       if (x.requires_grad())
         x.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("thrown in a hook"); });
     }},
    {"throws_on_a_thread", [](Tensor&) { std::thread([] { throw std::runtime_error("thrown on a thread"); }).join(); }},
    {"exits", [](Tensor&) { std::exit(0); }},
    {"exits_at_once", [](Tensor&) { ::_exit(0); }},
    {"aborts", [](Tensor&) { std::abort(); }},
    {"loops", [](Tensor&) { loop_for_ever(); }},
    {"bad_alloc", [](Tensor&) { throw std::bad_alloc(); }},
    {"out_of_memory", [](Tensor& x) { x = x + torch::zeros({int64_t{1} << 46}); }},
};

struct BlockImpl : nn::Module {
  BlockImpl(int64_t width, int64_t hidden)
      : in(register_module("in", nn::Linear(width, hidden))), out(register_module("out", nn::Linear(hidden, width))) {}
  Tensor forward(Tensor x) {
    const auto misbehave = kInForward.find(fault_now);
    if (misbehave != kInForward.end()) misbehave->second(x);
    return x + out(torch::tanh(in(x)));
  }
  nn::Linear in, out;
};
TORCH_MODULE(Block);

// Blocks 0 and 1 are of one size, block 2 is larger.
struct NetImpl : nn::Module {
  NetImpl() {
    for (const int64_t hidden : {32, 32, 96})
      blocks.push_back(register_module("block" + std::to_string(blocks.size()),
                                       mantissa::Unit<Block>(int64_t{16}, int64_t{hidden})));
  }
  Tensor forward(Tensor x) {
    std::vector<size_t> order{0, 1, 2};
    if (fault_now == "other_unit_of_same_size") order = {1, 0, 2};
    if (fault_now == "other_unit_of_other_size") order = {2, 1, 0};
    if (fault_now == "leaves_a_unit_out") order = {0, 2};
    for (const size_t i : order) x = blocks[i](x);
    return x;
  }
  std::vector<mantissa::Unit<Block>> blocks;
};
TORCH_MODULE(Net);

void train(const mantissa::World& world, const std::string& fault, int victim) {
  torch::set_num_threads(1);
  torch::manual_seed(world.rank());
  auto net = mantissa::fully_shard(Net(), world);
  torch::optim::SGD optimizer(net.shards(), torch::optim::SGDOptions(1e-3));
  for (int step = 0; step < kSteps; ++step) {
    const bool faulty = step == kFaultyStep && world.rank() == victim;
    if (faulty && fault == "returns") return;
    fault_now = faulty ? fault : "";
    const Tensor loss = net(torch::randn({4, 16})).pow(2).mean();
    loss.backward();
    mantissa::clip_grad_norm_(net.root(), 1.0);
    optimizer.step();
    optimizer.zero_grad();
    if (world.rank() == 0 && step < 10) std::printf("step %d\n", step + 1), std::fflush(stdout);
  }
}

mantissa::RankOutcome run_rank(const mantissa::LocalRank& local, std::chrono::seconds timeout, const std::string& fault,
                               int victim) {
  std::unique_ptr<mantissa::World> world;
  try {
    world = std::make_unique<mantissa::World>(
        std::make_shared<mantissa::World::Impl>(mantissa::rendezvous_of(local), timeout));
    train(*world, fault, victim);
    return {};
  } catch (...) {
    mantissa::RankOutcome outcome = mantissa::outcome_of(std::current_exception());
    if (world && outcome.origin)
      world->impl().group.report_fault(static_cast<mantissa::ExitCode>(outcome.exit_code), outcome.message);
    if (world) world->impl().group.abort();
    return outcome;
  }
}

}  // namespace

int main(int, char** argv) {
  const std::string fault = argv[1];
  const int victim = std::atoi(argv[2]), ranks = std::atoi(argv[3]);
  const std::chrono::seconds timeout(std::atoi(argv[4]));
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (ranks == 0) {
    train(mantissa::World::from_env(timeout), fault, victim);
    return 0;
  }
  mantissa::install_terminate_handler();
  const mantissa::JobOutcome outcome = mantissa::launch(
      ranks, [&](const mantissa::LocalRank& local) { return run_rank(local, timeout, fault, victim); });
  if (!outcome.message.empty()) std::fprintf(stderr, "mantissa: error: %s\n", outcome.message.c_str());
  return outcome.exit_code;
}
