// run_cases FILE...: runs case files (tests/dist/cases/README.md has their form) on real ranks, each case at its world
// size, through the engine, the gradient code, the optimizer and the plugins. Prints every failing case with what it
// got and what was wanted, then `N passed, M failed`; exit 1 on a failure.
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "base/error.h"
#include "checks.h"
#include "support/ranks.h"

namespace mantissa {
namespace {

using cases::json;

// "" if the case holds on this rank.
std::string check(const json& c, const World& world) {
  if (c.contains("op")) return cases::check_clip(c, world);
  if (c.contains("scaler")) return cases::check_loss_scale(c, world);
  if (c.contains("windows")) return cases::check_accumulate(c, world);
  if (c.contains("kind")) return cases::check_precision(c, world);
  return "no kind of case that this program knows";
}

// Runs one case on ranks of its own, so that a case that ends in an error or a crash ends no other. "" if it holds.
std::string run_case(const json& c) {
  const int world_size = c.at("world").get<int>();
  const JobOutcome outcome = test::job_on_ranks(world_size, [&](const World& world) {
    const std::string problem = check(c, world);
    if (!problem.empty()) throw Error(problem);
  });
  return outcome.exit_code == 0 ? "" : outcome.message;
}

int run(const std::vector<std::string>& files) {
  size_t passed = 0, failed = 0;
  for (const std::string& file : files) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error("cannot read " + file);
    for (const json& c : json::parse(in)) {
      const std::string problem = run_case(c);
      ++(problem.empty() ? passed : failed);
      if (problem.empty()) continue;
      std::printf("FAILED %s (%s, world %d): %s\n", c.at("id").get<std::string>().c_str(), file.c_str(),
                  c.at("world").get<int>(), problem.c_str());
      std::fflush(stdout);
    }
  }
  std::printf("%zu passed, %zu failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace mantissa

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::runtime_error("usage: run_cases FILE...");
    return mantissa::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "run_cases: %s\n", error.what());
    return 2;
  }
}
