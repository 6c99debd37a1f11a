// run_cases FILE...: runs case files (tests/dist/cases/README.md has their form) on real ranks, each case at its world
// size, through the engine, the gradient code, the optimizer and the plugins. Prints every failing case with what it got
// and what was wanted, then `N passed, M failed`; exit 1 on a failure.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>

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

struct Case {
  std::string file;
  json content;
};

// Runs all cases of one world size on one set of ranks; rank 0 prints, and adds to the file `tally`.
void run_world(const std::vector<const Case*>& cases, const World& world, const std::string& tally) {
  std::ofstream out;
  if (world.rank() == 0) out.open(tally, std::ios::app);
  for (const Case* c : cases) {
    std::string problem;
    try {
      problem = check(c->content, world);
    } catch (const CommError&) {
      throw;
    } catch (const PeerFailed&) {
      throw;
    } catch (const std::exception& error) {
      problem = std::string("exception: ") + error.what();
    }
    const double failures = world.all_reduce(problem.empty() ? 0 : 1);
    if (!problem.empty())
      std::printf("FAILED %s (%s, rank %d of %d): %s\n", c->content.at("id").get<std::string>().c_str(),
                  c->file.c_str(), world.rank(), world.size(), problem.c_str());
    std::fflush(stdout);
    if (world.rank() == 0) out << (failures == 0 ? "passed\n" : "failed\n") << std::flush;
  }
}

int run(const std::vector<std::string>& files) {
  std::vector<Case> cases;
  for (const std::string& file : files) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error("cannot read " + file);
    for (const json& c : json::parse(in)) cases.push_back({file, c});
  }
  std::map<int, std::vector<const Case*>> by_world;
  for (const Case& c : cases) by_world[c.content.at("world").get<int>()].push_back(&c);

  char tally[] = "/tmp/mantissa-cases-XXXXXX";
  const int fd = mkstemp(tally);
  if (fd < 0) throw std::runtime_error("cannot make a temporary file");
  close(fd);
  std::fflush(stdout);
  for (const auto& [world_size, group] : by_world) {
    const JobOutcome outcome =
        test::job_on_ranks(world_size, [&, &list = group](const World& world) { run_world(list, world, tally); });
    if (outcome.exit_code != 0) std::printf("world of %d: %s\n", world_size, outcome.message.c_str());
  }
  size_t passed = 0;
  std::ifstream in(tally);
  for (std::string line; std::getline(in, line);) passed += line == "passed";
  std::remove(tally);
  std::printf("%zu passed, %zu failed\n", passed, cases.size() - passed);
  return passed == cases.size() && passed > 0 ? 0 : 1;
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
