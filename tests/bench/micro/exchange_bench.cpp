// The exchange of packets between two ranks of this host, of which every step makes two.
#include <sys/mman.h>

#include <chrono>
#include <memory>

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "comm/launcher.h"
#include "comm/world.h"

namespace mantissa {
namespace {

// Memory that the forked ranks share with this process.
class SharedSeconds {
 public:
  SharedSeconds()
      : place_(::mmap(nullptr, sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedSeconds() {
    if (is_mapped()) ::munmap(place_, sizeof(double));
  }
  SharedSeconds(const SharedSeconds&) = delete;
  SharedSeconds& operator=(const SharedSeconds&) = delete;
  bool is_mapped() const { return place_ != MAP_FAILED; }
  double& value() const { return *static_cast<double*>(place_); }

 private:
  void* place_;
};

RankOutcome exchange(const LocalRank& local, int64_t times, double& seconds) {
  try {
    at::set_num_threads(1);
    const World world(std::make_shared<World::Impl>(rendezvous_of(local), std::chrono::seconds(20)));
    world.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < times; ++i) world.impl().exchange.agree(Operation::backward);
    if (local.rank == 0) seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    world.barrier();  // nobody takes the store away while the other needs it
    return {};
  } catch (const std::exception& error) {
    return {1, true, error.what()};
  }
}

// The ranks are forked for each run of the benchmark and time themselves, so that their start does not count.
void Exchange_TwoRanks(benchmark::State& state) {
  const SharedSeconds seconds;
  if (!seconds.is_mapped()) return state.SkipWithError("no shared memory");
  const auto times = static_cast<int64_t>(state.max_iterations);
  const JobOutcome outcome = launch(2, [&](const LocalRank& local) { return exchange(local, times, seconds.value()); });
  if (outcome.exit_code != 0) return state.SkipWithError(outcome.message.c_str());
  for (auto _ : state) state.SetIterationTime(seconds.value() / static_cast<double>(times));
}

BENCHMARK(Exchange_TwoRanks)->UseManualTime();

}  // namespace
}  // namespace mantissa
