// --dry-run: nothing is started, and what it tells of the plan and of memory is what a run then has.
#include <cmath>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "support/program.h"

namespace mantissa {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class DryRun : public ::testing::Test {
 protected:
  void SetUp() override { test::write_file(folder_ / "text.txt", std::string(20000, 'x')); }

  void write_config(const std::string& model, const std::string& more) {
    test::write_file(
        folder_ / "run.toml",
        "[run]\nname = \"t\"\nsteps = 2\n[model]\nkind = \"gpt\"\n" + model +
            "\n[data]\npath = \"text.txt\"\nheldout = 0\n[precision]\nplugin = \"fsdp_norm\"\n[log]\nevery "
            "= 1\n[distributed]\ntimeout_s = 100\n" +
            more);
  }

  json dry_run(int ranks) {
    const test::ProgramResult result = test::run_mantissa(
        {"train", "run.toml", "--ranks", std::to_string(ranks), "--dry-run", "--json"}, folder_.path());
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
    return json::parse(result.out);
  }

  // The largest peak of a rank, bytes, as the run measured it.
  double peak_of_run(int ranks) {
    const test::ProgramResult result = test::run_mantissa({"train", "run.toml", "--ranks", std::to_string(ranks), "-q"},
                                                          folder_.path(), {}, std::chrono::seconds(200));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto rows = test::lines_of(test::read_file(test::run_folder(folder_.path()) / "metrics.jsonl"));
    return json::parse(rows.back())["memory_mb"].get<double>() * 1e6;
  }

  void expect_estimate_within(double part, int ranks) {
    const double estimated = dry_run(ranks)["memory_bytes"]["peak"], measured = peak_of_run(ranks);
    std::printf("estimated %.0f MB, measured %.0f MB, ratio %.3f\n", estimated / 1e6, measured / 1e6,
                estimated / measured);
    EXPECT_NEAR(estimated / measured, 1, part);
  }

  test::TempFolder folder_;
};

TEST_F(DryRun, Plan_OfUnits_HasEveryParameterAndPaddedShards) {
  write_config("layers = 3\nwidth = 24\nheads = 2\ncontext = 10", "[train]\nbatch = 5\n");
  const json plan = dry_run(5);
  EXPECT_EQ(plan["units"].size(), 4u);
  int64_t sum = 0;
  for (const json& unit : plan["units"]) {
    sum += unit["parameters"].get<int64_t>();
    EXPECT_GE(5 * unit["shard"].get<int64_t>(), unit["parameters"].get<int64_t>());
    EXPECT_LT(5 * unit["shard"].get<int64_t>(), unit["parameters"].get<int64_t>() + 16 * 20 + 5) << unit;
  }
  EXPECT_EQ(sum, plan["num_parameters"].get<int64_t>());
  // 12 width^2 + 13 width a block, embeddings, the last norm and the head
  EXPECT_EQ(sum, 3 * (12 * 24 * 24 + 13 * 24) + 256 * 24 + 10 * 24 + 2 * 24 + 256 * 24);
}

TEST_F(DryRun, Text_ForPeople_SaysThatNothingWasStarted) {
  write_config("layers = 1\nwidth = 16\nheads = 2\ncontext = 8", "[train]\nbatch = 2\n");
  const test::ProgramResult result = test::run_mantissa({"train", "run.toml", "--dry-run"}, folder_.path());
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  for (const char* text : {"nothing was started", "(root)", "blocks.0", "memory of a rank", "activations", "peak"})
    EXPECT_THAT(result.out, HasSubstr(text));
}

TEST_F(DryRun, Memory_Of67MillionParametersWithAdamwOnFourRanks_IsWithin15Percent) {
  write_config("layers = 5\nwidth = 1056\nheads = 8\ncontext = 64", "[train]\nbatch = 4\n");
  EXPECT_NEAR(dry_run(4)["num_parameters"].get<double>(), 67e6, 1e6);
  expect_estimate_within(0.15, 4);
}

TEST_F(DryRun, Memory_WithoutSharding_IsWithin15Percent) {
  write_config("layers = 4\nwidth = 512\nheads = 8\ncontext = 64", "[train]\nbatch = 4\n[fsdp]\nsharding = \"none\"\n");
  expect_estimate_within(0.15, 2);
}

TEST_F(DryRun, Memory_WithGradientsKeptToTheLastMicrobatch_IsWithin15Percent) {
  write_config("layers = 6\nwidth = 512\nheads = 8\ncontext = 64",
               "[train]\nbatch = 4\nmicrobatches = 3\n[fsdp]\nreduce_every_microbatch = false\n[optimizer]\nkind = "
               "\"sgd\"\nmomentum = 0.9\n");
  expect_estimate_within(0.15, 2);
}

TEST_F(DryRun, Memory_WhereActivationsAreMost_IsWithin15Percent) {
  write_config("layers = 4\nwidth = 256\nheads = 4\ncontext = 256", "[train]\nbatch = 16\n");
  expect_estimate_within(0.15, 2);
}

}  // namespace
}  // namespace mantissa
