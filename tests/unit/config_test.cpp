// Config: what is read, what is refused and in which words.
#include "config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Everything that has no default, in five lines: what a test adds begins on line 6.
constexpr const char* kRequired =
    "run.name = \"t\"\n"
    "run.steps = 10\n"
    "model.kind = \"gpt\"\n"
    "data.path = \"kjv.txt\"\n"
    "precision.plugin = \"fsdp_norm\"\n";

/// A folder of its own for each test, gone with it.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "mantissa-config-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = fs::canonical(name);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return path_; }
  fs::path write(const std::string& text, const std::string& name = "run.toml") const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }

 private:
  fs::path path_;
};

Config load(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const Folder folder;
  return load_config(folder.write(text), overrides).config;
}

/// The problems of a config, without the folder of its file.
std::vector<std::string> problems(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const Folder folder;
  const fs::path file = folder.write(text);
  try {
    load_config(file, overrides);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::usage);
    std::vector<std::string> lines = error.problems();
    const std::string prefix = folder.path().string() + "/";
    for (std::string& line : lines) {
      if (line.starts_with(prefix)) line.erase(0, prefix.size());
    }
    return lines;
  }
  return {};
}

std::string setting(const LoadedConfig& loaded, const std::string& key) {
  for (const Setting& setting : loaded.settings) {
    if (setting.key == key) return setting.value + " from " + setting.origin;
  }
  return "absent";
}

// --- broken configs: what stands after the required keys, and what is said about it ---

struct Broken {
  const char* name;
  std::string text;
  std::vector<std::string> lines;
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.text; }

class ConfigProblem : public ::testing::TestWithParam<Broken> {};

TEST_P(ConfigProblem, IsToldInOneLine) { EXPECT_EQ(problems(kRequired + GetParam().text), GetParam().lines); }

const std::string kSections =
    "run, model, data, train, optimizer, schedule, precision, clip, fsdp, distributed, log, sample, plugins";
const std::string kDigits(63, 'a');

const Broken kBroken[] = {
    // names
    {"KeyMistyped",
     "[train]\nbtach = 8\n",
     {"run.toml:7:1: train.btach: got an unknown key, need a key of [train]; did you mean batch?"}},
    {"KeyUpperCase",
     "[train]\nBATCH = 8\n",
     {"run.toml:7:1: train.BATCH: got an unknown key, need a key of [train]; did you mean batch?"}},
    {"KeyCutShort",
     "[sample]\ntemp = 1.0\n",
     {"run.toml:7:1: sample.temp: got an unknown key, need a key of [sample]; did you mean temperature?"}},
    {"KeyOfAnotherSection",
     "[train]\nlr = 1e-3\n",
     {"run.toml:7:1: train.lr: got an unknown key, need a key of [train]; did you mean optimizer.lr?"}},
    {"KeyFarFromAll",
     "[train]\nfoo = 1\n",
     {"run.toml:7:1: train.foo: got an unknown key, need one of batch, microbatches, eval_every, "
      "max_consecutive_skips"}},
    {"KeyOfALaterVersion",
     "[optimizer]\nfused = true\n",
     {"run.toml:7:1: optimizer.fused: got an unknown key, need one of kind, lr, betas, eps, weight_decay, decay, "
      "momentum"}},
    {"KeyInQuotes",
     "[log]\n\"e v\" = 1\n",
     {"run.toml:7:1: log.\"e v\": got an unknown key, need one of every, unit_norms"}},
    {"KeyIsATable",
     "[log.every]\nx = 1\n",
     {"run.toml:6:6: log.every: got a table, need a whole number from 1 to 1000000000000"}},
    {"SectionMistyped",
     "[trian]\nbatch = 8\n",
     {"run.toml:6:2: trian: got an unknown section, need a known one; did you mean [train]?"}},
    {"SectionOfALaterVersion",
     "[checkpoint]\nevery = 8\n",
     {"run.toml:6:2: checkpoint: got an unknown section, need one of " + kSections}},
    {"SectionAsArrayOfALaterVersion",
     "[[swap]]\nstep = 8\n",
     {"run.toml:6:3: swap: got an unknown section, need one of " + kSections}},
    {"SectionTwiceAsArray",
     "[[train]]\nbatch = 8\n[[train]]\nbatch = 9\n",
     {"run.toml:6:3: train: got an array of tables, need one section [train]"}},
    {"SectionIsANumber", "train = 8\n", {"run.toml:6:1: train: got 8, need one section [train]"}},
    {"KeyOutsideOfSections",
     "batch = 8\n",
     {"run.toml:6:1: batch: got a key outside of all sections, need it in one; did you mean train.batch?"}},
    {"KeyOutsideOfSectionsUnknown",
     "foo = 8\n",
     {"run.toml:6:1: foo: got a key outside of all sections, need it in one of " + kSections}},
    // types
    {"WholeAsFloat",
     "[train]\nbatch = 8.0\n",
     {"run.toml:7:1: train.batch: got 8.0, need a whole number from 1 to 1000000"}},
    {"WholeAsText",
     "[train]\nbatch = \"8\"\n",
     {"run.toml:7:1: train.batch: got \"8\", need a whole number from 1 to 1000000"}},
    {"NumberAsBool", "[optimizer]\nlr = true\n", {"run.toml:7:1: optimizer.lr: got true, need a finite number > 0"}},
    {"NumberAsArray",
     "[optimizer]\nlr = [1e-3]\n",
     {"run.toml:7:1: optimizer.lr: got [0.001], need a finite number > 0"}},
    {"BoolAsWhole",
     "[fsdp]\nreshard_after_forward = 1\n",
     {"run.toml:7:1: fsdp.reshard_after_forward: got 1, need true or false"}},
    {"BoolAsText",
     "[plugins]\nrequire_pin = \"yes\"\n",
     {"run.toml:7:1: plugins.require_pin: got \"yes\", need true or false"}},
    {"TextAsWhole",
     "[sample]\nprompt = 3\n",
     {"run.toml:7:1: sample.prompt: got 3, need a text in quotes, at least one character"}},
    {"WordAsBool",
     "[schedule]\nkind = false\n",
     {"run.toml:7:1: schedule.kind: got false, need \"constant\", \"linear\" or \"cosine\""}},
    {"PathAsTable",
     "model.init = { file = \"w\" }\n",
     {"run.toml:6:7: model.init: got a table, need a path in quotes"}},
    {"WholeAsDate",
     "[log]\nevery = 1979-05-27\n",
     {"run.toml:7:1: log.every: got a date or time, need a whole number from 1 to 1000000000000"}},
    {"LongValueIsShortened",
     "[log]\nevery = \"" + std::string(500, 'x') + "\"\n",
     {"run.toml:7:1: log.every: got \"" + std::string(59, 'x') + "..., need a whole number from 1 to 1000000000000"}},
    {"ValueWithControlCharacters",
     "[schedule]\nkind = \"a\\u001b[31m\\nb\"\n",
     {"run.toml:7:1: schedule.kind: got \"a\\u001B[31m\\nb\", need \"constant\", \"linear\" or \"cosine\""}},
    // ranges
    {"BatchZero", "[train]\nbatch = 0\n", {"run.toml:7:1: train.batch: got 0, need a whole number from 1 to 1000000"}},
    {"LayersNegative",
     "[train]\nmicrobatches = -1\n",
     {"run.toml:7:1: train.microbatches: got -1, need a whole number from 1 to 1000000"}},
    {"EvalEveryNegative",
     "[train]\neval_every = -1\n",
     {"run.toml:7:1: train.eval_every: got -1, need a whole number from 0 to 1000000000000"}},
    {"SkipsZero",
     "[train]\nmax_consecutive_skips = 0\n",
     {"run.toml:7:1: train.max_consecutive_skips: got 0, need a whole number from 1 to 1000000000000"}},
    {"SeedNegative", "run.seed = -1\n", {"run.toml:6:5: run.seed: got -1, need a whole number >= 0"}},
    {"LayersHuge",
     "model.layers = 9223372036854775807\n",
     {"run.toml:6:7: model.layers: got 9223372036854775807, need a whole number from 1 to 10000"}},
    {"ContextZero",
     "model.context = 0\n",
     {"run.toml:6:7: model.context: got 0, need a whole number from 1 to 1000000"}},
    {"HeldoutAll", "data.heldout = 1.0\n", {"run.toml:6:6: data.heldout: got 1.0, need a number in [0, 1)"}},
    {"HeldoutNegative", "data.heldout = -0.1\n", {"run.toml:6:6: data.heldout: got -0.1, need a number in [0, 1)"}},
    {"LrZero", "[optimizer]\nlr = 0\n", {"run.toml:7:1: optimizer.lr: got 0, need a finite number > 0"}},
    {"LrNan", "[optimizer]\nlr = nan\n", {"run.toml:7:1: optimizer.lr: got nan, need a finite number > 0"}},
    {"LrInfinite", "[optimizer]\nlr = inf\n", {"run.toml:7:1: optimizer.lr: got inf, need a finite number > 0"}},
    {"EpsZero", "[optimizer]\neps = 0.0\n", {"run.toml:7:1: optimizer.eps: got 0.0, need a finite number > 0"}},
    {"WeightDecayNegative",
     "[optimizer]\nweight_decay = -0.1\n",
     {"run.toml:7:1: optimizer.weight_decay: got -0.1, need a finite number >= 0"}},
    {"BetasOne",
     "[optimizer]\nbetas = [0.9, 1.0]\n",
     {"run.toml:7:1: optimizer.betas: got [0.9, 1.0], need two numbers in [0, 1), such as [0.9, 0.999]"}},
    {"BetasNan",
     "[optimizer]\nbetas = [nan, 0.9]\n",
     {"run.toml:7:1: optimizer.betas: got [nan, 0.9], need two numbers in [0, 1), such as [0.9, 0.999]"}},
    {"BetasThree",
     "[optimizer]\nbetas = [0.9, 0.9, 0.9]\n",
     {"run.toml:7:1: optimizer.betas: got [0.9, 0.9, 0.9], need two numbers in [0, 1), such as [0.9, 0.999]"}},
    {"BetasNotAnArray",
     "[optimizer]\nbetas = 0.9\n",
     {"run.toml:7:1: optimizer.betas: got 0.9, need two numbers in [0, 1), such as [0.9, 0.999]"}},
    {"MomentumOne",
     "[optimizer]\nkind = \"sgd\"\nmomentum = 1\n",
     {"run.toml:8:1: optimizer.momentum: got 1, need a number in [0, 1)"}},
    {"FloorAboveOne",
     "[schedule]\nkind = \"linear\"\nfloor = 1.1\n",
     {"run.toml:8:1: schedule.floor: got 1.1, need a number in [0, 1]"}},
    {"MaxNormNegative",
     "[clip]\nmax_norm = -1.0\n",
     {"run.toml:7:1: clip.max_norm: got -1.0, need a number >= 0 (inf clips nothing)"}},
    {"MaxNormNan",
     "[clip]\nmax_norm = nan\n",
     {"run.toml:7:1: clip.max_norm: got nan, need a number >= 0 (inf clips nothing)"}},
    {"ClipValueMinusInfinity",
     "[clip]\nvalue = -inf\n",
     {"run.toml:7:1: clip.value: got -inf, need a number >= 0 (inf clips nothing)"}},
    {"NormTypeZero",
     "[clip]\nmax_norm = 1\nnorm_type = 0\n",
     {"run.toml:8:1: clip.norm_type: got 0, need a number in (0, inf]"}},
    {"NormTypeMinusZero",
     "[clip]\nmax_norm = 1\nnorm_type = -0.0\n",
     {"run.toml:8:1: clip.norm_type: got -0.0, need a number in (0, inf]"}},
    {"NormTypeNan",
     "[clip]\nmax_norm = 1\nnorm_type = nan\n",
     {"run.toml:8:1: clip.norm_type: got nan, need a number in (0, inf]"}},
    {"TimeoutZero",
     "[distributed]\ntimeout_s = 0\n",
     {"run.toml:7:1: distributed.timeout_s: got 0, need seconds in (0, 1e7]"}},
    {"TimeoutInfinite",
     "[distributed]\ntimeout_s = inf\n",
     {"run.toml:7:1: distributed.timeout_s: got inf, need seconds in (0, 1e7]"}},
    {"ThreadsZero",
     "[distributed]\nthreads = 0\n",
     {"run.toml:7:1: distributed.threads: got 0, need a whole number from 1 to 1024"}},
    {"LogEveryZero",
     "[log]\nevery = 0\n",
     {"run.toml:7:1: log.every: got 0, need a whole number from 1 to 1000000000000"}},
    {"TemperatureZero",
     "[sample]\ntemperature = 0\n",
     {"run.toml:7:1: sample.temperature: got 0, need a finite number > 0"}},
    {"SampleLengthZero",
     "[sample]\nlength = 0\n",
     {"run.toml:7:1: sample.length: got 0, need a whole number from 1 to 1000000"}},
    {"PromptEmpty",
     "[sample]\nprompt = \"\"\n",
     {"run.toml:7:1: sample.prompt: got \"\", need a text in quotes, at least one character"}},
    {"SlowNegative", "[plugins]\nslow_ms = -1\n", {"run.toml:7:1: plugins.slow_ms: got -1, need a finite number >= 0"}},
    // words
    {"OptimizerUnknown",
     "[optimizer]\nkind = \"adam\"\n",
     {"run.toml:7:1: optimizer.kind: got \"adam\", need \"adamw\" or \"sgd\""}},
    {"OptimizerUnknownSaysNothingAboutItsKeys",
     "[optimizer]\nkind = \"adam\"\nbetas = [0.9, 0.99]\nmomentum = 0.5\n",
     {"run.toml:7:1: optimizer.kind: got \"adam\", need \"adamw\" or \"sgd\""}},
    {"ShardingUnknown",
     "[fsdp]\nsharding = \"ddp\"\n",
     {"run.toml:7:1: fsdp.sharding: got \"ddp\", need \"full\" or \"none\""}},
    {"BackendOfAnotherBuild",
     "[distributed]\nbackend = \"nccl\"\n",
     {"run.toml:7:1: distributed.backend: got \"nccl\", need \"auto\" or \"gloo\" (NCCL is not in this build)"}},
    {"DataKindUnknown",
     "data.kind = \"images\"\n",
     {"run.toml:6:6: data.kind: got \"images\", need \"text\" or \"generated\""}},
    {"DataKindUnknownSaysNothingAboutItsKeys",
     "data.kind = \"images\"\ndata.heldout = 0\ndata.classes = 5\n",
     {"run.toml:6:6: data.kind: got \"images\", need \"text\" or \"generated\""}},
    {"DecayUnknown",
     "[optimizer]\ndecay = \"some\"\n",
     {"run.toml:7:1: optimizer.decay: got \"some\", need \"all\" or \"matrices\""}},
    {"Sha256TooShort",
     "precision.sha256 = \"" + kDigits + "\"\n",
     {"run.toml:6:11: precision.sha256: got \"" + kDigits.substr(0, 59) + "..., need 64 hex digits in quotes"}},
    {"Sha256NotHex",
     "precision.sha256 = \"g" + kDigits + "\"\n",
     {"run.toml:6:11: precision.sha256: got \"g" + kDigits.substr(0, 58) + "..., need 64 hex digits in quotes"}},
    {"InitEmpty", "model.init = \"\"\n", {"run.toml:6:7: model.init: got \"\", need a path in quotes"}},
    {"InitWithZeroByte",
     "model.init = \"a\\u0000b\"\n",
     {"run.toml:6:7: model.init: got \"a\\u0000b\", need a path in quotes"}},
    // keys against each other
    {"HeadsDoNotDivideWidth",
     "model.heads = 3\n",
     {"run.toml:6:7: model.heads: got 3, need a divisor of model.width = 256"}},
    {"WidthNoMultipleOfHeads",
     "model.width = 250\n",
     {"run.toml:6:7: model.width: got 250, need a multiple of model.heads = 4"}},
    {"WarmupLongerThanRun",
     "[schedule]\nwarmup = 11\n",
     {"run.toml:7:1: schedule.warmup: got 11, need at most run.steps = 10"}},
    {"GptWithGeneratedData",
     "data.kind = \"generated\"\n",
     {"run.toml:6:6: data.kind: got \"generated\", need \"text\" with model.kind = \"gpt\""}},
    {"KeysOfGeneratedDataWithText",
     "data.seed = 1\ndata.inputs = 8\ndata.classes = 3\ndata.heldout_rows = 9\n",
     {"run.toml:6:6: data.seed: got 1, need it left out: it has no effect with data.kind = \"text\"",
      "run.toml:7:6: data.inputs: got 8, need it left out: it has no effect with data.kind = \"text\"",
      "run.toml:8:6: data.classes: got 3, need it left out: it has no effect with data.kind = \"text\"",
      "run.toml:9:6: data.heldout_rows: got 9, need it left out: it has no effect with data.kind = \"text\""}},
    {"BetasWithSgd",
     "[optimizer]\nkind = \"sgd\"\nbetas = [0.9, 0.99]\neps = 1e-8\n",
     {"run.toml:8:1: optimizer.betas: got [0.9, 0.99], need it left out: it has no effect with optimizer.kind = "
      "\"sgd\"",
      "run.toml:9:1: optimizer.eps: got 1e-8, need it left out: it has no effect with optimizer.kind = \"sgd\""}},
    {"MomentumWithAdamw",
     "[optimizer]\nmomentum = 0.9\n",
     {"run.toml:7:1: optimizer.momentum: got 0.9, need it left out: it has no effect with optimizer.kind = \"adamw\""}},
    {"FloorWithConstant",
     "[schedule]\nfloor = 0.1\n",
     {"run.toml:7:1: schedule.floor: got 0.1, need it left out: it has no effect with schedule.kind = \"constant\""}},
    {"NormTypeWithValue",
     "[clip]\nvalue = 1.0\nnorm_type = 2.0\n",
     {"run.toml:8:1: clip.norm_type: got 2.0, need it left out: it has no effect with clip.value"}},
    {"MaxNormAndValue",
     "[clip]\nmax_norm = 1.0\nvalue = 1.0\n",
     {"run.toml:8:1: clip.value: got both max_norm and value, need one of them"}},
    {"ClipEmpty", "[clip]\n", {"run.toml:6:2: clip: got neither max_norm nor value, need one of them"}},
    {"ClipWithoutLimit",
     "[clip]\nerror_if_nonfinite = false\n",
     {"run.toml:6:2: clip: got neither max_norm nor value, need one of them"}},
    {"ReshardWithDdp",
     "[fsdp]\nsharding = \"none\"\nreshard_after_forward = true\n",
     {"run.toml:8:1: fsdp.reshard_after_forward: got true, need it left out: it has no effect with fsdp.sharding = "
      "\"none\""}},
    // options of a plugin
    {"OptionIsATable",
     "[precision.options.sub]\nx = 1\n",
     {"run.toml:6:20: precision.options.sub: got a table, need true, false, a number or a text in quotes"}},
    {"OptionIsAnArray",
     "[precision.options]\nsub = [1, 2]\n",
     {"run.toml:7:1: precision.options.sub: got [1, 2], need true, false, a number or a text in quotes"}},
    {"OptionsAreANumber",
     "precision.options = 3\n",
     {"run.toml:6:11: precision.options: got 3, need one section [precision.options]"}},
};

INSTANTIATE_TEST_SUITE_P(Broken, ConfigProblem, ::testing::ValuesIn(kBroken),
                         [](const auto& param) { return param.param.name; });

// --- a classifier, which takes generated rows ---

constexpr const char* kMlp =
    "run = {name = \"t\", steps = 10}\n"
    "precision.plugin = \"fsdp_norm\"\n"
    "model.kind = \"mlp\"\n"
    "data.kind = \"generated\"\n";

class ConfigProblemOfMlp : public ::testing::TestWithParam<Broken> {};

TEST_P(ConfigProblemOfMlp, IsToldInOneLine) { EXPECT_EQ(problems(kMlp + GetParam().text), GetParam().lines); }

const Broken kBrokenMlp[] = {
    {"KeysOfGpt",
     "model.heads = 4\nmodel.context = 8\n",
     {"run.toml:5:7: model.heads: got 4, need it left out: it has no effect with model.kind = \"mlp\"",
      "run.toml:6:7: model.context: got 8, need it left out: it has no effect with model.kind = \"mlp\""}},
    {"KeysOfText",
     "data.path = \"a.txt\"\ndata.heldout = 0.1\n",
     {"run.toml:5:6: data.path: got \"a.txt\", need it left out: it has no effect with data.kind = \"generated\"",
      "run.toml:6:6: data.heldout: got 0.1, need it left out: it has no effect with data.kind = \"generated\""}},
    {"Sample",
     "[sample]\nlength = 3\n",
     {"run.toml:5:2: sample: got a section, need it left out: a model of kind \"mlp\" writes no text"}},
    {"InputsZero", "data.inputs = 0\n", {"run.toml:5:6: data.inputs: got 0, need a whole number from 1 to 10000"}},
    {"OneClass", "data.classes = 1\n", {"run.toml:5:6: data.classes: got 1, need a whole number from 2 to 1000"}},
    {"HeldoutRowsNegative",
     "data.heldout_rows = -1\n",
     {"run.toml:5:6: data.heldout_rows: got -1, need a whole number from 0 to 1000000000"}},
    {"DataSeedNegative", "data.seed = -1\n", {"run.toml:5:6: data.seed: got -1, need a whole number >= 0"}},
};

INSTANTIATE_TEST_SUITE_P(Broken, ConfigProblemOfMlp, ::testing::ValuesIn(kBrokenMlp),
                         [](const auto& param) { return param.param.name; });

TEST(Config_Mlp, WithText_IsOneProblem) {
  const std::string start = "run = {name = \"t\", steps = 10}\nprecision.plugin = \"p\"\nmodel.kind = \"mlp\"\n";
  EXPECT_THAT(problems(start + "[data]\nkind = \"text\"\nheldout = 0.5\nclasses = 3\n"),
              ElementsAre("run.toml:5:1: data.kind: got \"text\", need \"generated\" with model.kind = \"mlp\""));
  EXPECT_THAT(problems(start + "[data]\npath = \"a.txt\"\n"),
              ElementsAre("run.toml:4:2: data.kind: got \"text\", need \"generated\" with model.kind = \"mlp\""));
  EXPECT_THAT(problems(start),
              ElementsAre("run.toml:1:1: data.kind: got \"text\", need \"generated\" with model.kind = \"mlp\""));
}

TEST(Config_Mlp, EveryKey_ReachesItsField) {
  const Config config = load(std::string(kMlp) + "data.seed = 4\ndata.inputs = 5\ndata.classes = 6\n" +
                             "data.heldout_rows = 0\noptimizer.decay = \"matrices\"\n");
  EXPECT_EQ(config.model.kind, "mlp");
  EXPECT_EQ(config.data.kind, "generated");
  EXPECT_EQ(config.data.seed, 4u);
  EXPECT_EQ(config.data.inputs, 5);
  EXPECT_EQ(config.data.classes, 6);
  EXPECT_EQ(config.data.heldout_rows, 0);
  EXPECT_EQ(config.optimizer.decay, Decay::matrices);
  EXPECT_EQ(load(kMlp).data.heldout_rows, 2048);
  EXPECT_EQ(load(kMlp).optimizer.decay, Decay::all);
}

// --- required keys ---

TEST(Config_Required, EmptyFile_NamesAllMissingKeys) {
  EXPECT_THAT(problems(""),
              ElementsAre("run.toml:1:1: run.name: got nothing, need a plain folder name in quotes, without /",
                          "run.toml:1:1: run.steps: got nothing, need a whole number >= 1",
                          "run.toml:1:1: model.kind: got nothing, need \"gpt\" or \"mlp\"",
                          "run.toml:1:1: data.path: got nothing, need the path of a text file in quotes",
                          "run.toml:1:1: precision.plugin: got nothing, need the name of a plugin, or a path with a /, "
                          "in quotes"));
}

TEST(Config_Required, SectionWithoutKey_ToldAtTheSection) {
  EXPECT_THAT(problems("run = {name = \"t\", steps = 1}\nmodel.kind = \"gpt\"\ndata.path = \"x\"\n\n[precision]\n"),
              ElementsAre(StartsWith("run.toml:5:2: precision.plugin: got nothing, need ")));
}

TEST(Config_Required, SectionThatIsNoTable_SaysSoOnce) {
  EXPECT_THAT(problems("run = 3\nmodel.kind = \"gpt\"\ndata.path = \"x\"\nprecision.plugin = \"p\"\n"),
              ElementsAre("run.toml:1:1: run: got 3, need one section [run]"));
}

TEST(Config_Required, ValuesThatCannotBe_AreRefused) {
  EXPECT_THAT(
      problems("run = {name = \"a/b\", steps = 0}\nmodel.kind = \"cnn\"\ndata.path = \"\"\nprecision.plugin = \"\"\n"),
      ElementsAre("run.toml:1:8: run.name: got \"a/b\", need a plain folder name in quotes, without /",
                  "run.toml:1:22: run.steps: got 0, need a whole number from 1 to 1000000000000",
                  "run.toml:2:7: model.kind: got \"cnn\", need \"gpt\" or \"mlp\"",
                  "run.toml:3:6: data.path: got \"\", need a path in quotes",
                  "run.toml:4:11: precision.plugin: got \"\", need the name of a plugin, or a path with a /, in "
                  "quotes"));
}

TEST(Config_RunName, NoPlainFolderName_IsRefused) {
  for (const std::string name : {"\"\"", "\".\"", "\"..\"", "\"a/b\"", "\"/\"", "\"a\\nb\"", "\"a\\u0000\"", "3"}) {
    EXPECT_THAT(problems("run = {name = " + name +
                         ", steps = 1}\nmodel.kind = \"gpt\"\ndata.path = \"x\"\n"
                         "precision.plugin = \"p\"\n"),
                ElementsAre("run.toml:1:8: run.name: got " + name + ", need a plain folder name in quotes, without /"));
  }
}

TEST(Config_Problems, OfTheWholeFile_AreSortedByPosition) {
  EXPECT_THAT(problems(std::string(kRequired) + "[plugins]\nslow_ms = -1\n[zzz]\n[train]\nbatch = 0\nbtach = 1\n"
                                                "[model.heads]\n"),
              ElementsAre(StartsWith("run.toml:7:1: plugins.slow_ms"), StartsWith("run.toml:8:2: zzz"),
                          StartsWith("run.toml:10:1: train.batch"), StartsWith("run.toml:11:1: train.btach"),
                          StartsWith("run.toml:12:")));
}

// --- files that are no TOML ---

TEST(Config_Syntax, Error_StandsAloneWithItsPosition) {
  struct Case {
    std::string text, start;
  };
  for (const Case& c :
       {Case{"[run]\nname = \n", "run.toml:2:"}, Case{"batch = 0\n[train]\nbatch = 1 2\n", "run.toml:3:"},
        Case{"a = 1\na = 2\n", "run.toml:2:"}, Case{"[a]\n[a]\n", "run.toml:2:"}, Case{"a = \"x\n", "run.toml:1:"},
        Case{"a = 012\n", "run.toml:1:"}, Case{"a = 99999999999999999999\n", "run.toml:1:"},
        Case{"a = [1,\n", "run.toml:"}, Case{"a = \"\x80\"\n", "run.toml:1:"}, Case{"\xC3(\n", "run.toml:1:"},
        Case{"a = \"\x1b\"\n", "run.toml:1:"}}) {
    const std::vector<std::string> lines = problems(c.text);
    ASSERT_EQ(lines.size(), 1u) << c.text;
    EXPECT_THAT(lines[0], StartsWith(c.start));
    EXPECT_THAT(lines[0], HasSubstr(": TOML syntax: "));
    EXPECT_EQ(lines[0].find_first_of("\n\x1b"), std::string::npos);
  }
}

TEST(Config_File, NotThere_IsOneLine) {
  try {
    load_config("no/such.toml");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "no/such.toml: cannot be read: No such file or directory; need a TOML file");
  }
}

TEST(Config_File, Folder_IsOneLine) {
  const Folder folder;
  try {
    load_config(folder.path());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), folder.path().string() + ": got a folder, need a TOML file");
  }
}

TEST(Config_File, Unreadable_IsOneLine) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads every file";
  const Folder folder;
  const fs::path file = folder.write(kRequired);
  fs::permissions(file, fs::perms::none);
  try {
    load_config(file);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), file.string() + ": cannot be read: Permission denied; need a TOML file");
  }
}

TEST(Config_File, LongerThanAMegabyte_IsRefused) {
  const std::string required = kRequired;
  EXPECT_THAT(problems(required + std::string(1'000'000 - required.size(), '#')), ElementsAre());
  EXPECT_THAT(problems(required + std::string(1'000'001 - required.size(), '#')),
              ElementsAre("run.toml: got more than 1 MB, need a config of at most 1000000 bytes"));
}

TEST(Config_File, NotUtf8_IsRefused) {
  using namespace std::string_literals;
  EXPECT_THAT(problems("# \xC3\xA9\0\n"s), ElementsAre("run.toml:1:4: got a zero byte, need text saved as UTF-8"));
  EXPECT_THAT(problems("\xEF\xBB\xBF[run]\n"),
              ElementsAre("run.toml:1:1: got a byte order mark, need text saved as UTF-8 without one"));
  EXPECT_THAT(problems("\xFF\xFE[\0r\0"s), ElementsAre("run.toml:1:1: got UTF-16, need text saved as UTF-8"));
}

std::string repeated(const std::string& part, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += part;
  return result;
}

TEST(Config_File, KeysTooDeep_AreRefusedBeforeParsing) {
  const std::string refusal =
      "got keys or arrays nested deeper than 64 levels, need the keys of a config: [section] and key = value";
  for (const std::string& text : {
           repeated("a.", 64) + "a = 1",                                      // a dotted key
           repeated("a . ", 200'000) + "a = 1",                               // that would take the parser's stack
           "[" + repeated("a.", 64) + "a]",                                   // a header
           "[[" + repeated("\"x]\".", 64) + "a]]",                            // with quotes
           "[" + repeated("a.", 31) + "a]\n" + repeated("b.", 32) + "b = 1",  // both together
           "x = " + repeated("{a = ", 64) + "1",                              // inline tables
           "x = {" + repeated("a.", 40) + "a = {" + repeated("b.", 40) + "b = 1}}",
           "x = " + repeated("[", 64) + "1",                       // arrays
           "t = '''\n''' # '''\n" + repeated("a.", 64) + "a = 1",  // after a string of several lines
           "t = \"\\\"\" # \"\n" + repeated("a.", 64) + "a = 1",   // after an escaped quote
       }) {
    const std::vector<std::string> lines = problems(text);
    ASSERT_EQ(lines.size(), 1u) << text.substr(0, 80);
    EXPECT_THAT(lines[0], HasSubstr(refusal)) << text.substr(0, 80);
  }
}

TEST(Config_File, DotsThatNestNothing_AreNoDepth) {
  const std::string dots = repeated("a.", 100);
  const Config config = load(std::string(kRequired) + "# " + dots + "\n[sample]\nprompt = \"\"\"" + dots + "\n[" +
                             dots + "]\"\"\"\n[precision.options]\na = '" + dots + "'\nb = '''" + dots + "''''\n");
  EXPECT_EQ(config.sample->prompt, dots + "\n[" + dots + "]");
  EXPECT_EQ(std::get<std::string>(config.precision.options.at(1).value), dots + "'");
}

TEST(Config_File, KeyAt64Levels_IsOnlyUnknown) {
  EXPECT_THAT(problems(std::string(kRequired) + repeated("a.", 63) + "a = 1\n"),
              ElementsAre(StartsWith("run.toml:6:1: a: got an unknown section")));
}

// --- good configs ---

TEST(Config_Defaults, RequiredKeysOnly_AreThoseOfTheStructs) {
  const Config config = load(kRequired), plain;
  EXPECT_EQ(config.run.name, "t");
  EXPECT_EQ(config.run.steps, 10);
  EXPECT_EQ(config.run.dir, "runs");
  EXPECT_EQ(config.model.width, plain.model.width);
  EXPECT_FALSE(config.model.init);
  EXPECT_EQ(config.optimizer.kind, OptimizerKind::adamw);
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_EQ(config.schedule.kind, ScheduleKind::constant);
  EXPECT_EQ(config.clip.kind, ClipKind::none);
  EXPECT_TRUE(config.clip.error_if_nonfinite);
  EXPECT_TRUE(config.fsdp.full);
  EXPECT_EQ(config.distributed.timeout_s, 300);
  EXPECT_FALSE(config.sample);
  EXPECT_FALSE(config.precision.sha256);
  EXPECT_TRUE(config.precision.options.empty());
}

constexpr const char* kFull = R"(
[run]
name = "all keys"
seed = 9223372036854775807
steps = 1_000
dir = '/tmp/runs'
[model]
kind = "gpt"
layers = 2
width = 0x40
heads = 8
context = 32
init = "weights.safetensors"
[data]
kind = "text"
path = "../text/a.txt"
heldout = 0
[train]
batch = 4
microbatches = 2
eval_every = 0
max_consecutive_skips = 7
[optimizer]
kind = "sgd"
lr = 1
weight_decay = 0
momentum = 0.5
[schedule]
kind = "cosine"
warmup = 1000
floor = 0.25
[precision]
plugin = "./plugins/../mine.so"
sha256 = "0123456789abcdefABCDEF0123456789abcdefABCDEF0123456789abcdef0123"
[precision.options]
z = "bfloat16"
a = true
number = 65536.0
"odd key" = -3
[clip]
max_norm = -0.0
norm_type = inf
error_if_nonfinite = false
[fsdp]
sharding = "none"
reduce_every_microbatch = false
[distributed]
backend = "gloo"
timeout_s = 0.5
threads = 2
[log]
every = 1
[sample]
length = 5
prompt = "é\t\"x\"\\\u0001"
temperature = 2
seed = 3
[plugins]
require_pin = true
slow_ms = 0
)";

TEST(Config_Full, EveryKey_ReachesItsField) {
  const Folder folder;
  const Config config = load_config(folder.write(kFull, "configs/run.toml")).config;
  EXPECT_EQ(config.run.name, "all keys");
  EXPECT_EQ(config.run.seed, 9223372036854775807u);
  EXPECT_EQ(config.run.steps, 1000);
  EXPECT_EQ(config.run.dir, "/tmp/runs");
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.model.width, 64);
  EXPECT_EQ(config.model.heads, 8);
  EXPECT_EQ(config.model.context, 32);
  EXPECT_EQ(config.model.init, folder.path() / "configs/weights.safetensors");
  EXPECT_EQ(config.data.path, folder.path() / "text/a.txt");
  EXPECT_EQ(config.data.heldout, 0);
  EXPECT_EQ(config.train.batch, 4);
  EXPECT_EQ(config.train.microbatches, 2);
  EXPECT_EQ(config.train.eval_every, 0);
  EXPECT_EQ(config.train.max_consecutive_skips, 7);
  EXPECT_EQ(config.optimizer.kind, OptimizerKind::sgd);
  EXPECT_EQ(config.optimizer.lr, 1);
  EXPECT_EQ(config.optimizer.weight_decay, 0);
  EXPECT_EQ(config.optimizer.momentum, 0.5);
  EXPECT_EQ(config.schedule.kind, ScheduleKind::cosine);
  EXPECT_EQ(config.schedule.warmup, 1000);
  EXPECT_EQ(config.schedule.floor, 0.25);
  EXPECT_EQ(config.precision.plugin, (folder.path() / "configs/mine.so").string());
  EXPECT_EQ(config.precision.sha256->size(), 64u);
  EXPECT_EQ(config.clip.kind, ClipKind::norm);
  EXPECT_EQ(config.clip.limit, 0);
  EXPECT_FALSE(std::signbit(config.clip.limit));
  EXPECT_EQ(config.clip.norm_type, std::numeric_limits<double>::infinity());
  EXPECT_FALSE(config.clip.error_if_nonfinite);
  EXPECT_FALSE(config.fsdp.full);
  EXPECT_FALSE(config.fsdp.reduce_every_microbatch);
  EXPECT_EQ(config.distributed.backend, "gloo");
  EXPECT_EQ(config.distributed.timeout_s, 0.5);
  EXPECT_EQ(config.distributed.threads, 2);
  EXPECT_EQ(config.log.every, 1);
  EXPECT_EQ(config.sample->length, 5);
  EXPECT_EQ(config.sample->prompt, "\xC3\xA9\t\"x\"\\\x01");
  EXPECT_EQ(config.sample->temperature, 2);
  EXPECT_EQ(config.sample->seed, 3u);
  EXPECT_TRUE(config.plugins.require_pin);
  EXPECT_EQ(config.plugins.slow_ms, 0);
}

TEST(Config_Full, BetasAndValue_ReachTheirFields) {
  const Config config =
      load(std::string(kRequired) + "[optimizer]\nbetas = [0, 0.5]\neps = 1e-6\n[clip]\nvalue = inf\n[sample]\n");
  EXPECT_EQ(config.optimizer.beta1, 0);
  EXPECT_EQ(config.optimizer.beta2, 0.5);
  EXPECT_EQ(config.optimizer.eps, 1e-6);
  EXPECT_EQ(config.clip.kind, ClipKind::value);
  EXPECT_EQ(config.clip.limit, std::numeric_limits<double>::infinity());
  ASSERT_TRUE(config.sample) << "an empty section asks for a text with the defaults";
  EXPECT_EQ(config.sample->length, 128);
}

TEST(Config_Options, OfAPlugin_KeepTypeOrderAndPlace) {
  const Folder folder;
  const fs::path file = folder.write(kFull);
  const std::vector<OptionValue> options = load_config(file).config.precision.options;
  ASSERT_EQ(options.size(), 4u);
  EXPECT_EQ(options[0].key, "z");
  EXPECT_EQ(std::get<std::string>(options[0].value), "bfloat16");
  EXPECT_EQ(options[0].where, file.string() + ":36:1");
  EXPECT_TRUE(std::get<bool>(options[1].value));
  EXPECT_EQ(std::get<double>(options[2].value), 65536.0);
  EXPECT_EQ(options[3].key, "odd key");
  EXPECT_EQ(std::get<int64_t>(options[3].value), -3);
}

TEST(Config_Where, OfPluginAndLimit_IsTheKeysPlace) {
  const Folder folder;
  const fs::path file = folder.write(std::string(kRequired) + "[clip]\n  value = 1\n");
  const Config config = load_config(file).config;
  EXPECT_EQ(config.precision.where, file.string() + ":5:11");
  EXPECT_EQ(config.clip.where, file.string() + ":7:3");
  EXPECT_EQ(load_config(file, {"clip.value=2"}).config.clip.where, "--set");
}

TEST(Config_Paths, Absolute_StayAsTheyAre) {
  const Config config = load(
      "run = {name = \"t\", steps = 1}\nmodel.kind = \"gpt\"\ndata.path = \"/data/a.txt\"\n"
      "precision.plugin = \"/lib/p.so\"\n");
  EXPECT_EQ(config.data.path, "/data/a.txt");
  EXPECT_EQ(config.precision.plugin, "/lib/p.so");
}

TEST(Config_Paths, FileNamedFromItsOwnFolder_ResolveInThatFolder) {
  const Folder folder;
  folder.write(kRequired);
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const Config config = load_config("run.toml").config;
  fs::current_path(before);
  EXPECT_EQ(config.data.path, folder.path() / "kjv.txt");
  EXPECT_EQ(config.precision.plugin, "fsdp_norm") << "a name is no path";
}

// --- overrides ---

TEST(Config_Override, OfEachType_Wins) {
  const Config config =
      load(std::string(kRequired) + "[train]\nbatch = 8\n",
           {"train.batch=4", "optimizer.lr=2", "optimizer.betas=[0.5, 0.5]", "run.name = \"x = y # z\"",
            "clip.max_norm=inf", "clip . \"norm_type\" = 1", "fsdp.reshard_after_forward=false",
            "precision.options.scale=65536", "precision.options.'odd key'=\"v\"", "train.batch=2"});
  EXPECT_EQ(config.train.batch, 2);
  EXPECT_EQ(config.optimizer.lr, 2);
  EXPECT_EQ(config.optimizer.beta1, 0.5);
  EXPECT_EQ(config.run.name, "x = y # z");
  EXPECT_EQ(config.clip.kind, ClipKind::norm);
  EXPECT_EQ(config.clip.norm_type, 1);
  EXPECT_FALSE(config.fsdp.reshard_after_forward);
  ASSERT_EQ(config.precision.options.size(), 2u);
  EXPECT_EQ(std::get<int64_t>(config.precision.options[0].value), 65536);
  EXPECT_EQ(config.precision.options[0].where, "--set");
  EXPECT_EQ(config.precision.options[1].key, "odd key");
}

TEST(Config_Override, BareWord_IsATextWhereOneIsNeeded) {
  const Config config = load(kRequired, {"run.name=first-run_2", "optimizer.kind=sgd", "precision.plugin=fsdp_norm",
                                         "precision.options.param_dtype=bfloat16", "data.path=/a/b.txt"});
  EXPECT_EQ(config.run.name, "first-run_2");
  EXPECT_EQ(config.optimizer.kind, OptimizerKind::sgd);
  EXPECT_EQ(std::get<std::string>(config.precision.options.at(0).value), "bfloat16");
  EXPECT_EQ(config.data.path, "/a/b.txt");
}

TEST(Config_Override, RelativePath_IsMeantFromTheWorkingDirectory) {
  EXPECT_EQ(load(kRequired, {"data.path=x/y.txt"}).data.path, fs::current_path() / "x/y.txt");
  EXPECT_EQ(load(kRequired, {"precision.plugin=./p.so"}).precision.plugin, (fs::current_path() / "p.so").string());
}

TEST(Config_Override, SuppliesWhatTheFileLacks) {
  const Config config = load("", {"run.name=t", "run.steps=1", "model.kind=gpt", "data.path=/x", "precision.plugin=p"});
  EXPECT_EQ(config.run.steps, 1);
}

TEST(Config_Override, Wrong_IsToldAfterTheFilesProblems) {
  EXPECT_THAT(problems(std::string(kRequired) + "[train]\nbatch = 0\n",
                       {"train.microbatches=eight", "optimizer.lr=", "log.every=[1", "run.name=two words",
                        "train.btach=1", "batch=1", "model=3", "schedule.warmup=99"}),
              ElementsAre("run.toml:7:1: train.batch: got 0, need a whole number from 1 to 1000000",
                          "--set: train.microbatches: got eight, need a whole number from 1 to 1000000",
                          "--set: optimizer.lr: got nothing after =, need a TOML value: a string stands in quotes, so "
                          "for a shell '\"text\"'",
                          "--set: log.every: got [1, need a TOML value: a string stands in quotes, so for a shell "
                          "'\"text\"'",
                          "--set: run.name: got two words, need a TOML value: a string stands in quotes, so for a "
                          "shell '\"text\"'",
                          "--set: train.btach: got an unknown key, need a key of [train]; did you mean batch?",
                          "--set: batch: got a key outside of all sections, need it in one; did you mean train.batch?",
                          "--set: model: got 3, need one section [model]",
                          "--set: schedule.warmup: got 99, need at most run.steps = 10"));
}

TEST(Config_Override, SecondKeyHiddenInTheValue_IsNoValue) {
  EXPECT_THAT(problems(kRequired, {"train.batch=1\nrun.steps=2"}),
              ElementsAre(HasSubstr("got 1 run.steps=2, need a TOML value")));
}

TEST(Config_Override, DeepValue_DoesNotReachTheParser) {
  EXPECT_THAT(problems(kRequired, {"train.batch={" + repeated("a.", 100'000) + "a=1}"}),
              ElementsAre(HasSubstr("--set: train.batch: got {a.a.")));
}

TEST(Config_Override, NotKeyEqualsValue_IsAUsageError) {
  const Folder folder;
  const fs::path file = folder.write(kRequired);
  for (const std::string text : {"train.batch", "=8", "train..batch=8", ".batch=8", "train.=8", "[train]",
                                 "tr ain.batch=8", "\"train.batch=8", "", "   ", "a.'b'c=1"}) {
    try {
      load_config(file, {text});
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      ADD_FAILURE() << text << ": " << error.what();
    } catch (const UsageError& error) {
      EXPECT_EQ(error.what(), "--set: got " + text + ", need key=value with a dotted key, for example train.batch=8");
    }
  }
}

// --- show and the merged config ---

TEST(Config_Settings, NameValueAndOrigin) {
  const Folder folder;
  const fs::path file = folder.write(std::string(kRequired) + "[optimizer]\n  lr = 3e-3\n[sample]\n");
  const LoadedConfig loaded = load_config(file, {"train.batch=4"});
  EXPECT_EQ(setting(loaded, "run.name"), "\"t\" from " + file.string() + ":1:5");
  EXPECT_EQ(setting(loaded, "optimizer.lr"), "0.003 from " + file.string() + ":7:3");
  EXPECT_EQ(setting(loaded, "train.batch"), "4 from --set");
  EXPECT_EQ(setting(loaded, "optimizer.eps"), "1e-8 from default");
  EXPECT_EQ(setting(loaded, "optimizer.betas"), "[0.9, 0.999] from default");
  EXPECT_EQ(setting(loaded, "distributed.timeout_s"), "300.0 from default");
  EXPECT_EQ(setting(loaded, "fsdp.sharding"), "\"full\" from default");
  EXPECT_EQ(setting(loaded, "data.path"), "\"" + folder.path().string() + "/kjv.txt\" from " + file.string() + ":4:6");
  EXPECT_EQ(setting(loaded, "sample.length"), "128 from default");
}

TEST(Config_Settings, KeysWithoutEffect_AreAbsent) {
  const Folder folder;
  const LoadedConfig plain = load_config(folder.write(kRequired));
  for (const char* key : {"optimizer.momentum", "schedule.floor", "clip.norm_type", "clip.error_if_nonfinite",
                          "sample.length", "model.init", "precision.sha256", "data.seed", "data.classes"}) {
    EXPECT_EQ(setting(plain, key), "absent") << key;
  }
  const LoadedConfig other = load_config(
      folder.write(std::string(kRequired) + "optimizer.kind = \"sgd\"\nclip.value = 1\nfsdp.sharding = \"none\"\n"));
  for (const char* key : {"optimizer.betas", "optimizer.eps", "clip.norm_type", "fsdp.reshard_after_forward"}) {
    EXPECT_EQ(setting(other, key), "absent") << key;
  }
  const LoadedConfig mlp = load_config(folder.write(kMlp));
  for (const char* key : {"model.heads", "model.context", "data.path", "data.heldout"}) {
    EXPECT_EQ(setting(mlp, key), "absent") << key;
  }
  EXPECT_EQ(setting(mlp, "data.inputs"), "64 from default");
  EXPECT_EQ(setting(other, "optimizer.momentum"), "0.0 from default");
  EXPECT_EQ(setting(other, "clip.error_if_nonfinite"), "true from default");
}

std::vector<std::string> keys_and_values(const LoadedConfig& loaded) {
  std::vector<std::string> result;
  for (const Setting& setting : loaded.settings) result.push_back(setting.key + " = " + setting.value);
  return result;
}

TEST(Config_ToToml, ReadAgainFromAnotherFolder_HasTheSameValues) {
  const std::string required = kRequired;
  for (const std::string& text :
       {required, std::string(kFull), std::string(kMlp) + "optimizer.decay = \"matrices\"\n",
        required + "[clip]\nvalue = inf\n[optimizer]\nlr = 0.30000000000000004\n",
        required + "[sample]\nprompt = '''\nDEL \\ \"'''\n", required + "[precision.options]\n\"a.b = c\" = nan\n"}) {
    const Folder first, second;
    const LoadedConfig loaded = load_config(first.write(text, "deep/run.toml"), {"train.batch=4"});
    const LoadedConfig again = load_config(second.write(to_toml(loaded)));
    EXPECT_EQ(keys_and_values(again), keys_and_values(loaded));
    EXPECT_EQ(to_toml(again), to_toml(loaded));
    EXPECT_EQ(again.config.optimizer.lr, loaded.config.optimizer.lr);
    EXPECT_EQ(again.config.data.path, loaded.config.data.path);
  }
}

TEST(Config_ToToml, IsWrittenInSections) {
  const Folder folder;
  const std::string text = to_toml(load_config(folder.write(std::string(kRequired) + "precision.options.x = 1\n")));
  EXPECT_THAT(text,
              StartsWith("[run]\nname = \"t\"\nseed = 0\nsteps = 10\ndir = \"runs\"\n\n[model]\nkind = \"gpt\"\n"));
  EXPECT_THAT(text, HasSubstr("\n\n[precision]\nplugin = \"fsdp_norm\"\n\n[precision.options]\nx = 1\n\n[fsdp]\n"));
}

// --- the configs of the project ---

TEST(Config_Project, EachFileInConfigs_IsAccepted) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(MANTISSA_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    EXPECT_NO_THROW({
      const Config config = load_config(entry.path()).config;
      EXPECT_EQ(config.run.name, entry.path().stem()) << "the run folder should tell which config it was";
    }) << entry.path();
  }
  EXPECT_GE(files, 2);
}

// --- the nearest word ---

TEST(Nearest_Word, OneSlip_IsForgiven) {
  const std::vector<std::string> words{"train", "config", "plugin", "version"};
  for (const char* typed : {"trian", "trai", "traim", "trrain", "TRAIN", "tain"})
    EXPECT_EQ(nearest(typed, words), "train");
  EXPECT_EQ(nearest("plugins", words), "plugin");
  EXPECT_EQ(nearest("conf", words), "config");
  EXPECT_EQ(nearest("ver", words), "version");
}

TEST(Nearest_Word, FarFromAll_IsNothing) {
  const std::vector<std::string> words{"train", "config", "lr"};
  for (const char* typed : {"", "x", "xyz", "banana", "ab", "co"})
    EXPECT_EQ(nearest(typed, words), std::nullopt) << typed;
  EXPECT_EQ(nearest(std::string(1'000'000, 't'), words), std::nullopt);
  EXPECT_EQ(nearest("train", {}), std::nullopt);
}

TEST(Nearest_Word, TwoEquallyNear_FirstWins) {
  EXPECT_EQ(nearest("bat", std::vector<std::string>{"cat", "hat"}), "cat");
  EXPECT_EQ(nearest("hat", std::vector<std::string>{"cat", "hat"}), "hat");
}

}  // namespace
}  // namespace mantissa
