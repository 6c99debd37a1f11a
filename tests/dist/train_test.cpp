// `mantissa train` as a user runs it: what it writes, what it refuses, and how it ends when a rank or a plugin fails.
#include <cmath>

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "support/program.h"
#include "support/tensors.h"
#include "weights/safetensors.h"

namespace mantissa {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;

std::string test_plugin(const std::string& name) {
  return MANTISSA_BUILD_DIR "/tests/plugins/libmantissa-" + name + ".so";
}

class Train : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 600; ++i) text += "In the beginning was line " + std::to_string(i * i % 97) + ".\n";
    test::write_file(folder_ / "text.txt", text);
  }

  void write_config(const std::string& plugin, const std::string& steps = "6", const std::string& more = "") {
    test::write_file(
        folder_ / "run.toml",
        "[run]\nname = \"t\"\nsteps = " + steps +
            "\n[model]\nkind = \"gpt\"\nlayers = 2\nwidth = 16\nheads = 2\ncontext = 16\n[data]\npath = \"text.txt\"\n"
            "[train]\nbatch = 6\neval_every = 0\n[optimizer]\nkind = \"sgd\"\nlr = 0.1\nweight_decay = 0.0\n"
            "[precision]\nplugin = \"" +
            plugin + "\"\n[log]\nevery = 1\n" + more);
  }

  test::ProgramResult train(int ranks, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"train", "run.toml", "--ranks", std::to_string(ranks)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return test::run_mantissa(arguments, folder_.path());
  }

  std::vector<json> metrics() const {
    std::vector<json> rows;
    for (const std::string& line : test::lines_of(test::read_file(test::run_folder(folder_.path()) / "metrics.jsonl")))
      rows.push_back(json::parse(line));
    return rows;
  }

  // One error line that holds `text`, the given code, and no rank left.
  void expect_refused(const test::ProgramResult& result, int exit_code, const std::string& text) {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_FALSE(result.timed_out);
    EXPECT_THAT(result.err, HasSubstr(text));
    int errors = 0;
    for (const std::string& line : test::lines_of(result.err)) errors += line.find("error: ") != std::string::npos;
    EXPECT_EQ(errors, 1) << result.err;
  }

  const std::string clip_ = "[clip]\nmax_norm = 0.05\n";
  test::TempFolder folder_;
};

TEST_F(Train, RunFolder_HoldsWhatTheReadmeNames) {
  write_config("fsdp_norm", "12", "[clip]\nmax_norm = 5.0\n[sample]\nlength = 8\nprompt = \"In \"\n");
  const auto result = train(2);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto run = test::run_folder(folder_.path());
  for (const char* name : {"config.toml", "plugins.json", "metrics.jsonl", "events.jsonl", "weights.safetensors"})
    EXPECT_TRUE(std::filesystem::exists(run / name)) << name;
  const json plugins = json::parse(test::read_file(run / "plugins.json"));
  EXPECT_THAT(plugins.dump(), ::testing::AllOf(HasSubstr("fsdp_norm"), HasSubstr("sha256")));
  EXPECT_EQ(metrics().size(), 12u);
  EXPECT_TRUE(metrics().back().contains("val_bits_per_byte"));
  EXPECT_LT(metrics().back().at("loss").get<double>(), metrics().front().at("loss").get<double>());
  EXPECT_THAT(result.out, ::testing::AllOf(HasSubstr("fsdp_norm"), HasSubstr("tokens/s"), HasSubstr("In ")));
  const auto checked = test::run_mantissa({"config", "check", (run / "config.toml").string()}, folder_.path());
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
}

TEST_F(Train, SameSeedTwice_SameMetricsButForTimes) {
  write_config("fsdp_norm", "8", clip_);
  std::vector<std::vector<json>> runs;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(train(3).exit_code, 0);
    runs.push_back(metrics());
    for (json& row : runs.back()) {
      for (const char* name :
           {"tokens_per_s", "step_ms", "forward_ms", "backward_ms", "comm_ms", "optimizer_ms", "memory_mb"})
        row.erase(name);
    }
    std::filesystem::remove_all(folder_ / "runs");
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST_F(Train, StreamOfBatches_DoesNotDependOnRanks) {
  write_config("fsdp_norm", "4", clip_);
  std::vector<std::vector<json>> runs;
  for (int ranks : {1, 2, 5}) {
    ASSERT_EQ(train(ranks).exit_code, 0);
    runs.push_back(metrics());
    std::filesystem::remove_all(folder_ / "runs");
  }
  for (size_t i = 0; i < 4; ++i) {
    const double want = runs[0][i].at("loss").get<double>(), norm = runs[0][i].at("grad_norm").get<double>();
    for (const auto& run : runs) {
      EXPECT_NEAR(run[i].at("loss").get<double>(), want, 1e-5 * want);
      EXPECT_NEAR(run[i].at("grad_norm").get<double>(), norm, 1e-5 * norm);
    }
  }
}

// With plain SGD, w1 = w0 - lr * coef * g: a plugin that clips at half the limit moves the weights half as far.
TEST_F(Train, PluginThatClipsAtHalf_MovesWeightsHalfAsFar) {
  write_config("fsdp_norm", "1", clip_);
  const auto weights_of = [&](const std::string& plugin, const std::string& lr) {
    const auto result = train(2, {"--set", "precision.plugin=\"" + plugin + "\"", "--set", "optimizer.lr=" + lr});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const SafetensorsFile file(test::run_folder(folder_.path()) / "weights.safetensors");
    std::map<std::string, at::Tensor> tensors;
    for (const SafetensorsEntry& entry : file.entries()) tensors[entry.name] = file.tensor(entry.name);
    std::filesystem::remove_all(folder_ / "runs");
    return tensors;
  };
  const auto start = weights_of("fsdp_norm", "1e-30"), whole = weights_of("fsdp_norm", "1.0"),
             half = weights_of(test_plugin("clips_at_half"), "1.0");
  double moved = 0;
  for (const auto& [name, w0] : start) {
    // half = start + (whole - start) / 2
    const at::Tensor middle = at::mul(at::add(w0, whole.at(name)), at::scalar_tensor(0.5));
    moved = std::max(moved, test::largest_difference(whole.at(name), w0));
    EXPECT_LT(test::largest_difference(half.at(name), middle), 3e-7) << name;
  }
  EXPECT_GT(moved, 1e-4);
}

TEST_F(Train, PluginThatClipsNothing_EndsTheRun) {
  write_config(test_plugin("clips_nothing"), "6", clip_);
  expect_refused(train(2), 1, "clipped less than [clip] asks");
}

struct Failing {
  const char* plugin;
  int exit_code;
  const char* message;
};
void PrintTo(const Failing& value, std::ostream* out) { *out << value.plugin; }

class TrainFails : public Train, public ::testing::WithParamInterface<Failing> {};

TEST_P(TrainFails, OneRankOrAll_OneClearLine) {
  write_config(test_plugin(GetParam().plugin), "6", clip_ + "[distributed]\ntimeout_s = 20.0\n");
  const auto result = train(3);
  expect_refused(result, GetParam().exit_code, GetParam().message);
  EXPECT_LT(result.seconds, 20) << "ended by a time limit instead of by word";
}

INSTANTIATE_TEST_SUITE_P(
    Plugins, TrainFails,
    ::testing::Values(
        Failing{"fails_in_create_on_rank_1", 3,
                "rank 1 failed: create-failed: plugin fails_in_create_on_rank_1: create failed with MTS_INTERNAL: no "
                "licence on this machine"},
        Failing{"fails_in_clip_on_rank_1", 1, "the sensor is off"}, Failing{"stale_root_on_rank_1", 1, "MTS_STALE"},
        Failing{"returns_early_on_rank_1", 1, "left before the collective"},
        Failing{"fails_in_update_on_rank_1", 1, "no room for the log"},
        Failing{"unset_norm", 1, "did not set total_norm"}, Failing{"wrong_norm", 1, "returned total_norm"},
        Failing{"aborts_at_step_3", 5, "step 3: plugin aborts_at_step_3 gave up: the loss has stopped falling"},
        Failing{"uneven_plan", 3, "bad-plan"}, Failing{"asks_for_float16_storage", 3, "bad-plan"},
        Failing{"asks_for_float16_wire", 3, "reduce_dtype Half without loss scaling"},
        Failing{"bad_loss_scale", 1, "loss_scale returned 0, need a number > 0 that float32 holds exactly"},
        Failing{"uneven_loss_scale", 1, "rank 0 and rank 1 have different loss scales: 4"},
        Failing{"forgets_to_unscale", 1, "unscale did not call unscale_grads"},
        Failing{"unscales_twice", 1, "MTS_ORDER: gradients were unscaled already"},
        Failing{"unscales_by_another_scale", 1, "gradients are to be unscaled by 8, but the loss was multiplied by 4"},
        Failing{"clips_in_unscale", 1, "gradient service called in unscale, allowed in clip"},
        Failing{"leaves_found_inf_unset", 1, "did not set found_inf to 0 or 1"},
        Failing{"creates_nothing", 3, "it returned MTS_OK, but set no context"},
        Failing{"writes_nan", 1, "decided to take the step, but the gradients' norm is nan"},
        Failing{"scales_unevenly", 1, "rank 0 and rank 1 scaled or clamped gradients differently"}),
    [](const auto& kind) { return kind.param.plugin; });

TEST_F(Train, OwnCollectives_WorkInASlot) {
  write_config(test_plugin("own_collectives"), "3", clip_);
  const auto result = train(3);
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(Train, SkippedSteps_ChangeNothingAndEndTheRunAtTheLimit) {
  write_config(test_plugin("skips_every_step"), "20", clip_);
  const auto result = train(2, {"--set", "train.max_consecutive_skips=4"});
  expect_refused(result, 5, "4 steps in a row were skipped");
  const auto rows = metrics();
  ASSERT_GE(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("lr"), rows[1].at("lr"));
  EXPECT_EQ(rows[1].at("skipped_total").get<int>(), 2);
}

struct Refused {
  const char* name;
  const char* plugin;  // a built one, or the content of the file after "text:"
  const char* message;
};
void PrintTo(const Refused& value, std::ostream* out) { *out << value.name; }

class TrainRefuses : public Train, public ::testing::WithParamInterface<Refused> {};

TEST_P(TrainRefuses, Plugin_BeforeAnyRankStarts) {
  std::string plugin = GetParam().plugin;
  if (plugin.starts_with("text:")) {
    test::write_file(folder_ / "libmantissa-mine.so", plugin.substr(5));
    plugin = "./libmantissa-mine.so";
  } else if (plugin == "patched") {  // fsdp_norm with another major in its note
    std::string bytes = test::read_file(MANTISSA_BUILD_DIR "/plugins/libmantissa-fsdp_norm.so");
    const size_t name = bytes.find(std::string("mantissa\0\0\0\0\1\0\0\0", 16));
    ASSERT_NE(name, std::string::npos);
    bytes[name + 12] = 2;
    test::write_file(folder_ / "libmantissa-mine.so", bytes);
    plugin = "./libmantissa-mine.so";
  } else if (plugin != "fsdp_norm") {
    plugin = test_plugin(plugin);
  }
  write_config(plugin, "6", clip_);
  const std::vector<std::string> pin{"--set", "precision.sha256=\"" + std::string(64, 'a') + "\""};
  const auto result = train(2, std::string(GetParam().name) == "WrongPin" ? pin : std::vector<std::string>{});
  expect_refused(result, 3, GetParam().message);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, TrainRefuses,
                         ::testing::Values(Refused{"TextFile", "text:no library at all\n", "not-a-plugin"},
                                           Refused{"OtherMajor", "patched", "abi-major"},
                                           Refused{"NoEntry", "no_entry", "no-entry"},
                                           Refused{"WrongPin", "fsdp_norm", "hash-mismatch"}),
                         [](const auto& kind) { return kind.param.name; });

TEST_F(Train, UnknownOption_NamesTheNearest) {
  write_config("fsdp_norm", "6", "[precision.options]\nparam_dtyp = \"bfloat16\"\n");
  expect_refused(train(2), 3, "param_dtype");
}

TEST_F(Train, ClipByValueWithFsdpNorm_IsAConfigError) {
  write_config("fsdp_norm", "6", "[clip]\nvalue = 0.5\n");
  expect_refused(train(2), 2, "clip.value");
}

TEST_F(Train, MoreRanksThanRows_IsAConfigError) {
  write_config("fsdp_norm");
  expect_refused(train(7), 2, "train.batch");
}

TEST_F(Train, RunDirThatCannotBeWritten_IsSaid) {
  write_config("fsdp_norm");
  test::write_file(folder_ / "runs", "a file, not a folder");
  expect_refused(train(2), 2, "runs");
}

TEST_F(Train, InitThatDoesNotFit_NamesTheTensorsAndExits4) {
  write_config("fsdp_norm", "1");
  ASSERT_EQ(train(1).exit_code, 0);
  std::filesystem::copy(test::run_folder(folder_.path()) / "weights.safetensors", folder_ / "w.safetensors");
  const auto good = train(2, {"--set", "model.init=\"w.safetensors\""});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  const auto bad = train(2, {"--set", "model.init=\"w.safetensors\"", "--set", "model.layers=3"});
  expect_refused(bad, 4, "blocks.2.attn_qkv.weight");
  expect_refused(train(2, {"--set", "model.init=\"text.txt\""}), 4, "text.txt");
}

TEST_F(Train, NormTypeWhoseNormOverflows_IsNotCalledADivergence) {
  write_config("fsdp_norm", "6", "[clip]\nmax_norm = 1.0\nnorm_type = 0.01\n");
  expect_refused(train(2), 5, "use a larger clip.norm_type");
}

TEST_F(Train, ConfigCheck_AsksTextWeightsAndPluginToo) {
  const auto check = [&](const std::string& setting) {
    return test::run_mantissa({"config", "check", "run.toml", "--set", setting}, folder_.path());
  };
  write_config("fsdp_norm");
  expect_refused(check("data.path=nowhere.txt"), 2, "nowhere.txt");
  expect_refused(check("model.init=text.txt"), 4, "text.txt");
  expect_refused(check("precision.plugin=fsdp_nrm"), 3, "fsdp_norm");
  expect_refused(check("precision.options.param_dtyp=bfloat16"), 3, "param_dtype");
  EXPECT_EQ(check("run.seed=1").exit_code, 0);
}

bool alive(pid_t pid) {
  const std::string stat = test::read_file("/proc/" + std::to_string(pid) + "/stat");
  return !stat.empty() && stat.find(") Z ") == std::string::npos;
}

TEST_F(Train, KilledRank_IsNamedAndNothingIsLeftBehind) {
  for (const int victim : {1, 0, 2}) {
    write_config("fsdp_norm", "100000", clip_);
    test::RunningProgram program({test::mantissa_program(), "train", "run.toml", "--ranks", "3"}, folder_.path());
    if (!program.wait_for("2/100000", seconds(60))) program.wait_for("step", seconds(5));
    const std::vector<pid_t> ranks = test::children_of(program.pid());
    ASSERT_EQ(ranks.size(), 3u);
    const auto start = std::chrono::steady_clock::now();
    kill(ranks[static_cast<size_t>(victim)], SIGKILL);
    const auto result = program.wait(seconds(30));
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
    expect_refused(result, 1, "rank " + std::to_string(victim) + " was killed by signal 9");
    for (pid_t pid : ranks) EXPECT_FALSE(alive(pid));
    std::filesystem::remove_all(folder_ / "runs");
  }
}

TEST_F(Train, StopSignals_EndAfterTheStepWithTheirCode) {
  for (const auto& [signal, code] : {std::pair{SIGTERM, 143}, {SIGINT, 130}}) {
    write_config("fsdp_norm", "100000", clip_);
    test::RunningProgram program({test::mantissa_program(), "train", "run.toml", "--ranks", "2"}, folder_.path());
    program.wait_for("2/100000", seconds(60));
    kill(program.pid(), signal);
    const auto result = program.wait(seconds(30));
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(test::read_file(test::run_folder(folder_.path()) / "events.jsonl"), HasSubstr("stop"));
    std::filesystem::remove_all(folder_ / "runs");
  }
}

TEST_F(Train, RanksFromTheEnvironment_EqualThoseOfTheLauncher) {
  write_config("fsdp_norm", "3", clip_);
  ASSERT_EQ(train(2).exit_code, 0);
  const auto wanted = metrics();
  std::filesystem::remove_all(folder_ / "runs");
  const auto environment = [](int rank) {
    return std::map<std::string, std::string>{
        {"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29653"}};
  };
  test::RunningProgram one({test::mantissa_program(), "train", "run.toml"}, folder_.path(), environment(1));
  test::RunningProgram zero({test::mantissa_program(), "train", "run.toml"}, folder_.path(), environment(0));
  const auto result = zero.wait(seconds(60));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(one.wait(seconds(60)).exit_code, 0);
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(metrics()[i].at("loss"), wanted[i].at("loss"));
}

TEST_F(Train, RanksWithDifferentConfigs_EndBeforeTheyTrain) {
  write_config("fsdp_norm", "3", clip_);
  const auto environment = [](int rank) {
    return std::map<std::string, std::string>{
        {"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29655"}};
  };
  test::RunningProgram one({test::mantissa_program(), "train", "run.toml", "--set", "optimizer.lr=0.2"}, folder_.path(),
                           environment(1));
  test::RunningProgram zero({test::mantissa_program(), "train", "run.toml"}, folder_.path(), environment(0));
  expect_refused(zero.wait(seconds(60)), 2, "different configs");
  expect_refused(one.wait(seconds(60)), 2, "different configs");
}

TEST_F(Train, RanksOptionWithinARank_IsRefused) {
  write_config("fsdp_norm");
  const auto result =
      test::run_mantissa({"train", "run.toml", "--ranks", "2"}, folder_.path(), {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  expect_refused(result, 2, "--ranks");
}

// The store is rank 0's: its survivors used to ask it for ever why rank 0 did not answer.
TEST_F(Train, StoppedRankZero_EndsTheJobAtTheTimeLimit) {
  write_config("fsdp_norm", "100000", clip_ + "[distributed]\ntimeout_s = 2.0\n");
  test::RunningProgram program({test::mantissa_program(), "train", "run.toml", "--ranks", "3"}, folder_.path());
  ASSERT_TRUE(program.wait_for("2/100000", seconds(60)));
  const std::vector<pid_t> ranks = test::children_of(program.pid());
  ASSERT_EQ(ranks.size(), 3u);
  kill(ranks[0], SIGSTOP);
  const auto result = program.wait(seconds(60));
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 0 hung"));
  for (pid_t pid : ranks) EXPECT_FALSE(alive(pid));
}

TEST_F(Train, KilledRankWithoutLauncher_SurvivorNamesIt) {
  write_config("fsdp_norm", "100000", clip_);
  const auto environment = [](int rank) {
    return std::map<std::string, std::string>{
        {"RANK", std::to_string(rank)}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29654"}};
  };
  for (const int victim : {1, 0}) {
    test::RunningProgram zero({test::mantissa_program(), "train", "run.toml"}, folder_.path(), environment(0));
    test::RunningProgram one({test::mantissa_program(), "train", "run.toml"}, folder_.path(), environment(1));
    ASSERT_TRUE(zero.wait_for("2/100000", seconds(60)));
    kill(victim == 0 ? zero.pid() : one.pid(), SIGKILL);
    const auto survivor = (victim == 0 ? one : zero).wait(seconds(30));
    expect_refused(survivor, 1, "rank " + std::to_string(victim));
  }
}

}  // namespace
}  // namespace mantissa
