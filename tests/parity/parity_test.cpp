// The program against PyTorch's FSDP2 on the same weights and batches; golden/ is made by make_golden.py.
// Tolerances: loss and grad_norm 1e-5 relative, weights 1e-5 absolute, at every world size. The keys' bias has a true
// gradient of 0, so that AdamW moves it by rounding errors: PyTorch on 1 and 3 ranks is 1.6e-5 from its own 2 ranks
// there.
#include <cmath>

#include <nlohmann/json.hpp>

#include "support/program.h"
#include "support/tensors.h"
#include "weights/safetensors.h"

namespace mantissa {
namespace {

using nlohmann::json;

const std::filesystem::path kGolden = std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/parity/golden";

std::string config(const std::string& model_and_data, const std::string& more) {
  return "[run]\nname = \"parity\"\nsteps = 20\n" + model_and_data +
         "[precision]\nplugin = \"fsdp_norm\"\n[clip]\nmax_norm = 0.5\n[log]\nevery = 1\n" + more;
}

std::string gpt(int microbatches, const std::string& optimizer = "lr = 3e-4\n") {
  return "[model]\nkind = \"gpt\"\nlayers = 2\nwidth = 32\nheads = 2\ncontext = 32\ninit = \"" +
         (kGolden / "init.safetensors").string() + "\"\n[data]\npath = \"" + MANTISSA_SOURCE_DIR +
         "/LICENSE\"\nheldout = 0.0\n[train]\nbatch = 12\nmicrobatches = " + std::to_string(microbatches) +
         "\n[optimizer]\n" + optimizer;
}

std::string mlp(int microbatches, const std::string& optimizer) {
  return "[model]\nkind = \"mlp\"\nlayers = 2\nwidth = 16\ninit = \"" + (kGolden / "mlp_init.safetensors").string() +
         "\"\n[data]\nkind = \"generated\"\ninputs = 8\nclasses = 4\nseed = 5\nheldout_rows = 0\n[train]\nbatch = "
         "12\nmicrobatches = " +
         std::to_string(microbatches) + "\n[optimizer]\n" + optimizer;
}

constexpr const char* kAdamWMatrices = "lr = 3e-4\nweight_decay = 0.5\ndecay = \"matrices\"\n";
constexpr const char* kSgdMatrices =
    "kind = \"sgd\"\nlr = 0.1\nmomentum = 0.9\nweight_decay = 0.5\ndecay = \"matrices\"\n";

void expect_close(double got, double want, const std::string& what) {
  EXPECT_NEAR(got, want, 1e-5 * std::fabs(want)) << what;
}

void expect_metrics(const std::filesystem::path& run, const json& golden) {
  const auto rows = test::lines_of(test::read_file(run / "metrics.jsonl"));
  ASSERT_EQ(rows.size(), golden.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const json row = json::parse(rows[i]);
    expect_close(row.at("loss").get<double>(), golden[i].at("loss").get<double>(), "loss of step " + std::to_string(i));
    expect_close(row.at("grad_norm").get<double>(), golden[i].at("grad_norm").get<double>(),
                 "grad_norm of step " + std::to_string(i));
  }
}

void expect_weights(const std::filesystem::path& got_file, const std::filesystem::path& want_file) {
  const SafetensorsFile got(got_file), want(want_file);
  ASSERT_EQ(got.entries().size(), want.entries().size());
  for (const SafetensorsEntry& entry : want.entries()) {
    const double tolerance = entry.name.ends_with("attn_qkv.bias") ? 5e-5 : 1e-5;
    EXPECT_LT(test::largest_difference(got.tensor(entry.name), want.tensor(entry.name)), tolerance) << entry.name;
  }
}

void expect_equal_to_pytorch(const std::string& golden, int ranks, const std::string& config_text) {
  const test::TempFolder folder;
  test::write_file(folder / "run.toml", config_text);
  const test::ProgramResult result =
      test::run_mantissa({"train", "run.toml", "--ranks", std::to_string(ranks)}, folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::filesystem::path run = test::run_folder(folder.path());
  expect_metrics(run, json::parse(test::read_file(kGolden / (golden + ".json"))));
  if (golden != "gpt_matrices") expect_weights(run / "weights.safetensors", kGolden / (golden + ".safetensors"));
}

struct Setting {
  const char* golden;
  int microbatches;
  int ranks;
  const char* name;
  const char* more;
};
void PrintTo(const Setting& value, std::ostream* out) { *out << value.name; }

class Parity : public ::testing::TestWithParam<Setting> {};

TEST_P(Parity, TwentySteps_EqualPyTorchFsdp2) {
  const Setting& setting = GetParam();
  expect_equal_to_pytorch(setting.golden, setting.ranks, config(gpt(setting.microbatches), setting.more));
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Parity,
    ::testing::Values(Setting{"one_microbatch", 1, 1, "OneRank", ""}, Setting{"one_microbatch", 1, 2, "TwoRanks", ""},
                      Setting{"one_microbatch", 1, 3, "ThreeRanks", ""},
                      Setting{"one_microbatch", 1, 4, "FourRanks", ""},
                      Setting{"one_microbatch", 1, 5, "FiveRanksUneven", ""},
                      Setting{"two_microbatches", 2, 1, "OneRankTwoMicrobatches", ""},
                      Setting{"two_microbatches", 2, 2, "TwoRanksTwoMicrobatches", ""},
                      Setting{"two_microbatches", 2, 3, "ThreeRanksTwoMicrobatches", ""},
                      Setting{"two_microbatches", 2, 4, "FourRanksTwoMicrobatches", ""},
                      Setting{"two_microbatches", 2, 3, "ReduceAtTheLastMicrobatch",
                              "[fsdp]\nreduce_every_microbatch = false\n"},
                      Setting{"one_microbatch", 1, 3, "KeptAfterForward", "[fsdp]\nreshard_after_forward = false\n"},
                      Setting{"one_microbatch", 1, 3, "ShardingNone", "[fsdp]\nsharding = \"none\"\n"}),
    [](const auto& setting) { return setting.param.name; });

// ---- other numerics: 50 steps

struct OtherNumerics {
  const char* golden;
  const char* plugin;     // and its options
  const char* optimizer;  // keys of [optimizer]
  int microbatches;
  const char* clip;
  double limit;  // of loss and norm, relative
};

std::string config_of(const OtherNumerics& n, const std::string& fsdp) {
  std::string text = gpt(n.microbatches, n.optimizer);
  return "[run]\nname = \"parity\"\nsteps = 50\n" + text + "[precision]\nplugin = " + n.plugin + "\n[clip]\n" + n.clip +
         "\n[log]\nevery = 1\n[fsdp]\nsharding = \"" + fsdp + "\"\n";
}

std::vector<json> rows_of_run(const std::string& config_text, int ranks) {
  const test::TempFolder folder;
  test::write_file(folder / "run.toml", config_text);
  const test::ProgramResult result =
      test::run_mantissa({"train", "run.toml", "--ranks", std::to_string(ranks)}, folder.path());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<json> rows;
  for (const std::string& line : test::lines_of(test::read_file(test::run_folder(folder.path()) / "metrics.jsonl")))
    rows.push_back(json::parse(line));
  return rows;
}

json golden_of(const std::string& name) { return json::parse(test::read_file(kGolden / (name + ".json"))); }

constexpr const char* kSmallRate = "lr = 3e-4\n";
constexpr const char* kLargeRate = "lr = 3e-3\n";
constexpr const char* kSgd = "kind = \"sgd\"\nlr = 0.1\nmomentum = 0.9\n";
constexpr const char* kClipNorm = "max_norm = 0.5";
constexpr const char* kClipValue = "value = 1e-3";

const OtherNumerics kOther[] = {
    {"gpt_float32", "\"fsdp_norm\"", kSgd, 2, kClipNorm, 1e-5},
    {"gpt_value", "\"fsdp_value\"", kSmallRate, 2, kClipValue, 1e-5},
    {"gpt_value", "\"amp\"", kSmallRate, 2, kClipValue, 2e-2},
    {"gpt_double", "\"double\"", kSmallRate, 2, kClipNorm, 1e-12},
    {"gpt_double_value", "\"double\"", kSgd, 1, kClipValue, 1e-12},
    {"gpt_bfloat16", "\"fsdp_norm\"\n[precision.options]\nparam_dtype = \"bfloat16\"", kLargeRate, 1, kClipNorm, 2e-2},
    {"gpt_amp", "\"amp\"", kLargeRate, 1, kClipNorm, 2e-2},
};

void PrintTo(const OtherNumerics& n, std::ostream* out) { *out << n.golden << " with " << n.plugin; }

class ParityOfNumerics : public ::testing::TestWithParam<std::tuple<OtherNumerics, int>> {};

TEST_P(ParityOfNumerics, FiftySteps_EqualPyTorch) {
  const auto& [numerics, ranks] = GetParam();
  const json golden = golden_of(numerics.golden);
  for (const char* sharding : {"full", "none"}) {
    const std::vector<json> rows = rows_of_run(config_of(numerics, sharding), ranks);
    ASSERT_EQ(rows.size(), golden.size());
    double loss_error = 0, norm_error = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto error = [&](const char* key) {
        const double want = golden[i].at(key).get<double>();
        return std::fabs(rows[i].at(key).get<double>() - want) / std::fabs(want);
      };
      loss_error = std::max(loss_error, error("loss"));
      norm_error = std::max(norm_error, error("grad_norm"));
    }
    std::printf("%s, %d ranks, sharding %s: loss %.2g, norm %.2g relative\n", numerics.golden, ranks, sharding,
                loss_error, norm_error);
    EXPECT_LE(loss_error, numerics.limit) << sharding;
    EXPECT_LE(norm_error, numerics.limit) << sharding;
  }
}

INSTANTIATE_TEST_SUITE_P(Plugins, ParityOfNumerics,
                         ::testing::Combine(::testing::ValuesIn(kOther), ::testing::Values(1, 2, 3, 4)));

TEST(ParityOfNumerics, WeightsInFloat64_EqualPyTorch) {
  for (const int ranks : {1, 2, 3, 4}) {
    const test::TempFolder folder;
    test::write_file(folder / "run.toml", "[run]\nname = \"parity\"\nsteps = 50\n" + mlp(1, kSmallRate) +
                                              "[precision]\nplugin = \"double\"\n[clip]\nmax_norm = 0.5\n");
    const test::ProgramResult result =
        test::run_mantissa({"train", "run.toml", "--ranks", std::to_string(ranks)}, folder.path());
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const SafetensorsFile got(test::run_folder(folder.path()) / "weights.safetensors"),
        want(kGolden / "mlp_double.safetensors");
    for (const SafetensorsEntry& entry : want.entries()) {
      EXPECT_EQ(got.tensor(entry.name).scalar_type(), at::kDouble);
      EXPECT_LT(test::largest_difference(got.tensor(entry.name), want.tensor(entry.name)), 1e-12) << entry.name;
    }
  }
}

// Two parameter groups, momentum, a classifier. Every combination of them is compared in tests/dist with LibTorch.
TEST(ParityOfOptimizers, DecayOfMatricesAndMomentum_EqualPyTorchFsdp2) {
  expect_equal_to_pytorch("gpt_matrices", 3, config(gpt(2, kSgdMatrices), ""));
  expect_equal_to_pytorch("mlp_adamw", 2, config(mlp(1, "lr = 3e-4\n"), ""));
  expect_equal_to_pytorch("mlp_adamw_matrices", 3, config(mlp(2, kAdamWMatrices), ""));
  expect_equal_to_pytorch("mlp_sgd_matrices", 1, config(mlp(1, kSgdMatrices), ""));
  expect_equal_to_pytorch("mlp_sgd_matrices", 2, config(mlp(1, kSgdMatrices), "[fsdp]\nsharding = \"none\"\n"));
}

}  // namespace
}  // namespace mantissa
