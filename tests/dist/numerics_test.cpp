// `mantissa train` with each kind of numerics: loss scaling, gradients that are not finite, the services of plugins.
#include <cmath>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "data/sampler.h"
#include "support/program.h"
#include "support/tensors.h"
#include "weights/safetensors.h"

namespace mantissa {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int64_t kContext = 16, kBatch = 6;

class Numerics : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 600; ++i) text_ += "In the beginning was line " + std::to_string(i * i % 97) + ".\n";
    test::write_file(folder_ / "text.txt", text_);
    test::write_file(folder_ / "run.toml",
                     "[run]\nname = \"t\"\nsteps = 6\n[model]\nkind = \"gpt\"\nlayers = 2\nwidth = 16\nheads = "
                     "2\ncontext = 16\n[data]\npath = \"text.txt\"\nheldout = 0.0\n[train]\nbatch = 6\n[optimizer]\n"
                     "kind = \"adamw\"\nlr = 1e-2\n[precision]\nplugin = \"fsdp_norm\"\n[log]\nevery = 1\n");
  }

  // The rows of metrics.jsonl and events.jsonl, what was printed, and the weights, of one run.
  struct Run {
    test::ProgramResult program;
    std::vector<json> metrics, events;
    std::map<std::string, at::Tensor> weights;
  };

  Run train(int ranks, const std::vector<std::string>& settings) {
    std::filesystem::remove_all(folder_ / "runs");
    std::vector<std::string> arguments{"train", "run.toml", "--ranks", std::to_string(ranks)};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    Run run{test::run_mantissa(arguments, folder_.path()), {}, {}, {}};
    const auto found = test::run_folder(folder_.path());
    run.metrics = rows(found / "metrics.jsonl");
    run.events = rows(found / "events.jsonl");
    if (!std::filesystem::exists(found / "weights.safetensors")) return run;
    const SafetensorsFile file(found / "weights.safetensors");
    for (const SafetensorsEntry& entry : file.entries()) run.weights[entry.name] = file.tensor(entry.name);
    return run;
  }

  static std::vector<json> rows(const std::filesystem::path& file) {
    std::vector<json> rows;
    if (!std::filesystem::exists(file)) return rows;
    for (const std::string& line : test::lines_of(test::read_file(file))) rows.push_back(json::parse(line));
    return rows;
  }

  static std::vector<json> skips(const Run& run) {
    std::vector<json> found;
    for (const json& event : run.events) {
      if (event.at("event") == "skip") found.push_back(event);
    }
    return found;
  }

  static void expect_same_bits(const Run& a, const Run& b) {
    ASSERT_FALSE(a.weights.empty());
    for (const auto& [name, tensor] : a.weights)
      EXPECT_EQ(std::memcmp(tensor.const_data_ptr(), b.weights.at(name).const_data_ptr(), tensor.nbytes()), 0) << name;
  }

  // A text with one byte 255 that only the last row of step 3 reads, and weights in which that byte is infinite: so the
  // gradients of the last rank alone are not finite, in that step alone. Settings that use both.
  std::vector<std::string> poison_step_3() {
    const Sampler sampler({0, kBatch, 1, text_.size() - kContext});
    const auto start = static_cast<int64_t>(sampler.row(3, 0, kBatch - 1));
    for (int64_t at = start; at < start + kContext; ++at) {
      bool alone = true;
      for (int64_t row = 0; row < 8 * kBatch; ++row) {
        const auto other = static_cast<int64_t>(sampler.row(row / kBatch, 0, row % kBatch));
        const bool is_the_one = row == 3 * kBatch + kBatch - 1;
        alone = alone && (is_the_one || at < other || at > other + kContext);
      }
      if (!alone) continue;
      std::string text = text_;
      text[static_cast<size_t>(at)] = '\xff';
      test::write_file(folder_ / "poisoned.txt", text);
      const Run start_weights = train(1, {"run.steps=1", "optimizer.lr=1e-30"});
      std::vector<NamedTensor> tensors;
      for (const auto& [name, tensor] : start_weights.weights) tensors.push_back({name, tensor});
      for (NamedTensor& tensor : tensors) {
        if (tensor.name == "tok.weight") tensor.tensor[255].fill_(std::numeric_limits<float>::infinity());
      }
      write_safetensors(folder_ / "poisoned.safetensors", tensors);
      return {"data.path=\"poisoned.txt\"", "model.init=\"poisoned.safetensors\""};
    }
    ADD_FAILURE() << "no byte that only one row reads";
    return {};
  }

  std::string text_;
  test::TempFolder folder_;
};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::vector<std::string> kFloat16{"precision.plugin=\"amp\"", "precision.options.dtype=\"float16\""};

TEST_F(Numerics, AmpInFloat16_SkipsUntilTheScaleFits_ThenLearnsAndGrows) {
  const Run run = train(2, kFloat16 + std::vector<std::string>{"run.steps=60", "precision.options.init_scale=16777216",
                                                               "precision.options.growth_interval=5"});
  ASSERT_EQ(run.program.exit_code, 0) << run.program.err;
  ASSERT_EQ(run.metrics.size(), 60u);
  double scale = 16777216;
  int64_t skipped = 0, raised = 0, tracker = 0;
  for (size_t i = 0; i < run.metrics.size(); ++i) {
    const json& row = run.metrics[i];
    ASSERT_EQ(row.at("loss_scale").get<double>(), scale) << "step " << i;
    const bool is_skipped = row.at("skipped_total").get<int64_t>() > skipped;
    if (is_skipped) {
      ++skipped;
      tracker = 0;
      scale /= 2;
      if (i + 1 < run.metrics.size()) {
        EXPECT_EQ(run.metrics[i + 1].at("lr"), row.at("lr")) << "the schedule stands still";
      }
    } else if (++tracker == 5) {
      tracker = 0;
      scale *= 2;
      ++raised;
    }
    EXPECT_EQ(row.at("amp.growth_tracker").get<int64_t>(), tracker) << "step " << i;
  }
  EXPECT_GE(skipped, 4) << "the first scale was not too large";
  EXPECT_GE(raised, 2);
  EXPECT_LT(run.metrics.back().at("loss").get<double>(), 0.75 * run.metrics.front().at("loss").get<double>());

  const std::vector<json> events = skips(run);
  ASSERT_EQ(static_cast<int64_t>(events.size()), skipped);
  for (const json& event : events) {
    EXPECT_EQ(event.at("reason"), "found_inf");
    if (event.at("step") != 59) {
      EXPECT_EQ(event.at("loss_scale_after").get<double>(), event.at("loss_scale").get<double>() / 2);
    }
  }
  EXPECT_THAT(run.program.out, HasSubstr("skipped: found_inf"));
  EXPECT_THAT(run.program.out, HasSubstr("loss_scale 16,777,216 -> 8,388,608)"));
  EXPECT_THAT(run.program.out, HasSubstr(", " + std::to_string(skipped) + " of them skipped"));
  EXPECT_THAT(run.program.out, HasSubstr(" at the last step, raised "));
}

// The norm is that of the true gradients, whatever the scale, and the clip limit is for it.
TEST_F(Numerics, LossScale_ShowsInNoOtherNumber) {
  const std::vector<std::string> clip{"clip.max_norm=0.1", "run.steps=4"};
  std::vector<Run> runs;
  for (const char* scale : {"1", "1024", "3000"})
    runs.push_back(
        train(2, kFloat16 + clip + std::vector<std::string>{"precision.options.init_scale=" + std::string(scale)}));
  for (const Run& run : runs) {
    ASSERT_EQ(run.program.exit_code, 0) << run.program.err;
    for (size_t i = 0; i < 4; ++i) {
      const double norm = runs[1].metrics[i].at("grad_norm").get<double>();
      EXPECT_NEAR(run.metrics[i].at("grad_norm").get<double>(), norm, 0.02 * norm);
      EXPECT_NEAR(run.metrics[i].at("grad_norm_clipped").get<double>(), 0.1, 1e-6);
    }
  }
}

TEST_F(Numerics, ScaleThatNeverFits_EndsTheRunAtTheLimitOfSkips) {
  const Run run = train(
      2, kFloat16 + std::vector<std::string>{"run.steps=50", "train.max_consecutive_skips=3",
                                             "precision.options.init_scale=1e30", "precision.options.min_scale=1e30"});
  EXPECT_EQ(run.program.exit_code, 5);
  EXPECT_THAT(run.program.err, HasSubstr("step 2: 3 steps in a row were skipped (found_inf)"));
  EXPECT_EQ(skips(run).size(), 3u) << "the last one is an event too";
}

class NonfiniteGradient : public Numerics, public ::testing::WithParamInterface<std::tuple<int, const char*>> {
 protected:
  std::vector<std::string> sharding() const {
    return {"fsdp.sharding=\"" + std::string(std::get<1>(GetParam())) + "\""};
  }
  int ranks() const { return std::get<0>(GetParam()); }
};

TEST_P(NonfiniteGradient, OfOneRank_EndsAllWithTheParameterNamed) {
  const Run run = train(ranks(), poison_step_3() + sharding());
  EXPECT_EQ(run.program.exit_code, 5);
  EXPECT_THAT(run.program.err, HasSubstr("step 3: the gradients' norm is nan; elements that are not finite: "));
  EXPECT_THAT(run.program.err, HasSubstr("tok.weight ("));
  EXPECT_THAT(run.program.err, HasSubstr(", first at index "));
  EXPECT_EQ(run.metrics.size(), 3u) << "steps 0 to 2 were taken";
}

TEST_P(NonfiniteGradient, WithoutTheError_IsSkippedWithEveryBitAsBefore) {
  const std::vector<std::string> settings = poison_step_3() + sharding();
  for (const std::vector<std::string>& clip :
       {std::vector<std::string>{"clip.max_norm=1.0"},
        std::vector<std::string>{"clip.value=0.01", "precision.plugin=\"fsdp_value\""}}) {
    const auto with = [&](const char* steps) {
      return train(ranks(), settings + clip + std::vector<std::string>{"clip.error_if_nonfinite=false", steps});
    };
    const Run before = with("run.steps=3"), skipped = with("run.steps=4"), after = with("run.steps=6");
    for (const Run* run : {&before, &skipped, &after}) ASSERT_EQ(run->program.exit_code, 0) << run->program.err;
    expect_same_bits(before, skipped);
    ASSERT_EQ(after.metrics.size(), 6u);
    EXPECT_EQ(after.metrics[3].at("grad_norm"), "nan");
    EXPECT_EQ(after.metrics[5].at("skipped_total").get<int>(), 1);
    EXPECT_TRUE(after.metrics[5].at("loss").is_number()) << "the run goes on";
    ASSERT_EQ(skips(after).size(), 1u);
    EXPECT_EQ(skips(after)[0].at("reason"), "grad_norm is nan");
  }
}

TEST_P(NonfiniteGradient, UnderLossScaling_IsSkippedThoughErrorsAreOn) {
  const Run run = train(ranks(), poison_step_3() + sharding() + kFloat16 +
                                     std::vector<std::string>{"precision.options.init_scale=64", "clip.max_norm=1.0"});
  ASSERT_EQ(run.program.exit_code, 0) << run.program.err;
  ASSERT_EQ(skips(run).size(), 1u);
  EXPECT_EQ(skips(run)[0].at("step"), 3);
  EXPECT_EQ(run.metrics[4].at("loss_scale").get<double>(), 32);
}

INSTANTIATE_TEST_SUITE_P(Ranks, NonfiniteGradient,
                         ::testing::Values(std::tuple{1, "full"}, std::tuple{2, "full"}, std::tuple{4, "full"},
                                           std::tuple{3, "none"}),
                         [](const auto& ranks) {
                           return std::to_string(std::get<0>(ranks.param)) + std::get<1>(ranks.param);
                         });

// Unscaled and before clipping, as grad_norm: the units together are the whole.
TEST_F(Numerics, UnitNorms_MakeUpTheWholeNorm) {
  for (const std::vector<std::string>& plugin :
       {std::vector<std::string>{}, kFloat16 + std::vector<std::string>{"precision.options.init_scale=256"}}) {
    const Run run =
        train(3, plugin + std::vector<std::string>{"log.unit_norms=true", "clip.max_norm=0.1", "run.steps=3"});
    ASSERT_EQ(run.program.exit_code, 0) << run.program.err;
    for (const json& row : run.metrics) {
      double sum = 0;
      for (const char* unit : {"root", "blocks.0", "blocks.1"})
        sum += std::pow(row.at(std::string("grad_norm.") + unit).get<double>(), 2);
      const double norm = row.at("grad_norm").get<double>();
      EXPECT_NEAR(std::sqrt(sum), norm, 1e-12 * norm);
    }
  }
}

std::string test_plugin(const std::string& name) {
  return "precision.plugin=\"" MANTISSA_BUILD_DIR "/tests/plugins/libmantissa-" + name + ".so\"";
}

TEST_F(Numerics, FoundInfOfOneRanksPlugin_SkipsOnAll) {
  const Run run = train(3, {test_plugin("finds_inf_on_rank_1")});
  ASSERT_EQ(run.program.exit_code, 0) << run.program.err;
  ASSERT_EQ(skips(run).size(), 1u);
  EXPECT_EQ(skips(run)[0].at("step"), 2);
  EXPECT_EQ(skips(run)[0].at("reason"), "found_inf");
}

TEST_F(Numerics, PluginThatTakesAStepWithNan_IsStoppedBeforeIt) {
  const Run run =
      train(2, poison_step_3() + std::vector<std::string>{test_plugin("takes_every_step"), "clip.max_norm=1.0",
                                                          "clip.error_if_nonfinite=false"});
  EXPECT_EQ(run.program.exit_code, 1);
  EXPECT_THAT(run.program.err, HasSubstr("decided to take the step, but the gradients' norm is nan"));
}

// What a plugin may do and the host once refused.
TEST_F(Numerics, CorrectPluginsOfOtherKinds_AreNotRefused) {
  const Run clamps = train(2, {test_plugin("clamps_then_asks_for_the_norm"), "clip.value=0.001", "run.steps=3"});
  EXPECT_EQ(clamps.program.exit_code, 0) << clamps.program.err;
  EXPECT_LT(clamps.metrics.at(0).at("grad_norm_clipped").get<double>(),
            clamps.metrics[0].at("grad_norm").get<double>());
  const Run spans = train(3, {test_plugin("clips_through_spans_after_the_norm"), "clip.max_norm=0.2", "run.steps=3"});
  EXPECT_EQ(spans.program.exit_code, 0) << spans.program.err;
  EXPECT_NEAR(spans.metrics.at(0).at("grad_norm_clipped").get<double>(), 0.1, 1e-6);
  const Run skipping = train(2, {test_plugin("skips_spikes"), "clip.max_norm=0.001", "run.steps=3"});
  EXPECT_EQ(skipping.program.exit_code, 0) << skipping.program.err;
  EXPECT_THAT(skipping.program.err, HasSubstr("every step was skipped"));
}

TEST_F(Numerics, ServicesOfTheHost_AgreeWithEachOther) {
  for (const int ranks : {1, 2, 5}) {
    for (const char* sharding : {"full", "none"}) {
      const Run run = train(ranks, {test_plugin("checks_services"), "clip.max_norm=0.05", "run.steps=3",
                                    "fsdp.sharding=\"" + std::string(sharding) + "\""});
      EXPECT_EQ(run.program.exit_code, 0) << ranks << sharding << run.program.err;
      ASSERT_EQ(run.metrics.size(), 3u);
      EXPECT_EQ(run.metrics[2].at("checks_services.checked").get<double>(), 2);
      // What the plugin wrote last is what is saved.
      for (const auto& [name, tensor] : run.weights)
        EXPECT_EQ(test::largest_difference(tensor, at::full(tensor.sizes(), 3.0)), 0) << name;
    }
  }
}

}  // namespace
}  // namespace mantissa
