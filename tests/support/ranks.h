// Runs a test's body on several ranks: forked children that join one process group over Gloo.
#pragma once
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <chrono>
#include <functional>
#include <string>

#include "base/error.h"
#include "comm/launcher.h"
#include "comm/world.h"

namespace mantissa::test {

inline World join(const LocalRank& local, std::chrono::seconds timeout) {
  return World(std::make_shared<World::Impl>(rendezvous_of(local), timeout));
}

/// Runs `body` on `world_size` ranks and returns how the job ended. A failed expectation of a rank is a failure of the
/// job.
inline JobOutcome job_on_ranks(int world_size, const std::function<void(World)>& body) {
  return launch(
      world_size,
      [&](const LocalRank& local) -> RankOutcome {
        at::set_num_threads(1);
        std::unique_ptr<World> world;
        try {
          world = std::make_unique<World>(join(local, std::chrono::seconds(20)));
          body(*world);
          if (::testing::Test::HasFailure()) return {1, true, "an expectation failed, see above"};
          world->barrier();  // nobody takes the store away while others need it
          return {};
        } catch (const std::exception& error) {
          if (world) {
            world->impl().group.report_fault(ExitCode::failed, error.what());
            world->impl().group.abort();
          }
          return {1, dynamic_cast<const PeerFailed*>(&error) == nullptr, error.what()};
        }
      },
      std::chrono::seconds(3));
}

inline void on_ranks(int world_size, const std::function<void(World)>& body) {
  const JobOutcome outcome = job_on_ranks(world_size, body);
  EXPECT_EQ(outcome.exit_code, 0) << world_size << " ranks: " << outcome.message;
}

}  // namespace mantissa::test
