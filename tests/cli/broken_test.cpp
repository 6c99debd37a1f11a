// Configs and command lines that are wrong: each is answered with the lines it deserves, exit code 2, no stack trace
// and no run folder. The program is run as a user would run it.
#include <gmock/gmock.h>

#include <algorithm>

#include "support/program.h"

namespace mantissa {
namespace {

using ::testing::ElementsAreArray;

constexpr const char* kBase =
    "[run]\n"
    "name = \"t\"\n"
    "steps = 2\n"
    "[model]\n"
    "kind = \"gpt\"\n"
    "layers = 1\n"
    "width = 16\n"
    "heads = 2\n"
    "context = 8\n"
    "[data]\n"
    "path = \"text.txt\"\n"
    "[train]\n"
    "batch = 2\n"
    "[precision]\n"
    "plugin = \"fsdp_norm\"\n";

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = kBase;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::string appended(const std::string& more) { return kBase + more; }

std::string utf16(const std::string& text) {
  std::string wide = "\xFF\xFE";
  for (const char c : text) wide += std::string{c, '\0'};
  return wide;
}

struct Broken {
  std::string name;
  std::string config;                  // run.toml
  std::vector<std::string> arguments;  // of mantissa
  std::vector<std::string> expected;   // lines on stderr, after "mantissa: error: "; DIR is the test's folder
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

const std::vector<std::string> kTrain{"train", "run.toml"};

class BrokenInput : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenInput, IsAnsweredInOneLineEach) {
  const test::TempFolder folder;
  test::write_file(folder / "run.toml", GetParam().config);
  std::string text;
  for (int i = 0; i < 40; ++i) text += "In the beginning was the word. ";
  test::write_file(folder / "text.txt", text);
  test::write_file(folder / "empty.txt", "");

  const test::ProgramResult result = test::run_mantissa(GetParam().arguments, folder.path());

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_FALSE(std::filesystem::exists(folder / "runs"));
  std::vector<std::string> lines = test::lines_of(result.err);
  const std::string start = "mantissa: error: ", path = folder.path().string();
  for (std::string& line : lines) {
    if (line.starts_with(start)) line.erase(0, start.size());
    if (const size_t at = line.find(path); at != std::string::npos) line.replace(at, path.size(), "DIR");
  }
  EXPECT_THAT(lines, ElementsAreArray(GetParam().expected));
}

// clang-format off
const std::vector<Broken> kCases = {
    // ---- types
    {"StepsAsText", replaced("steps = 2", "steps = \"ten\""), kTrain,
     {"run.toml:3:1: run.steps: got \"ten\", need a whole number from 1 to 1000000000000"}},
    {"StepsAsFraction", replaced("steps = 2", "steps = 2.5"), kTrain,
     {"run.toml:3:1: run.steps: got 2.5, need a whole number from 1 to 1000000000000"}},
    {"NameAsNumber", replaced("name = \"t\"", "name = 7"), kTrain,
     {"run.toml:2:1: run.name: got 7, need a plain folder name in quotes, without /"}},
    {"KindAsList", replaced("kind = \"gpt\"", "kind = [\"gpt\"]"), kTrain,
     {"run.toml:5:1: model.kind: got [\"gpt\"], need \"gpt\" or \"mlp\""}},
    {"LearningRateAsText", appended("[optimizer]\nlr = \"1e-3\"\n"), kTrain,
     {"run.toml:17:1: optimizer.lr: got \"1e-3\", need a finite number > 0"}},
    {"SwitchAsText", appended("[fsdp]\nreshard_after_forward = \"yes\"\n"), kTrain,
     {"run.toml:17:1: fsdp.reshard_after_forward: got \"yes\", need true or false"}},
    {"PathAsNumber", replaced("path = \"text.txt\"", "path = 1"), kTrain,
     {"run.toml:11:1: data.path: got 1, need a path in quotes"}},
    {"DateAsNumber", appended("[log]\nevery = 2026-12-01\n"), kTrain,
     {"run.toml:17:1: log.every: got a date or time, need a whole number from 1 to 1000000000000"}},
    {"SectionAsNumber", replaced("[train]\nbatch = 2\n", "train = 3\n"), kTrain,
     {"run.toml:12:1: data.train: got an unknown key, need one of kind, path, heldout, seed, inputs, classes, heldout_rows"}},
    {"SectionAsArrayOfTables", replaced("[train]\n", "[[train]]\n"), kTrain,
     {"run.toml:12:3: train: got an array of tables, need one section [train]"}},
    // ---- ranges
    {"StepsZero", replaced("steps = 2", "steps = 0"), kTrain,
     {"run.toml:3:1: run.steps: got 0, need a whole number from 1 to 1000000000000"}},
    {"SeedNegative", replaced("steps = 2", "steps = 2\nseed = -1"), kTrain,
     {"run.toml:4:1: run.seed: got -1, need a whole number >= 0"}},
    {"StepsTooLargeForInteger", replaced("steps = 2", "steps = 99999999999999999999"), kTrain,
     {"run.toml:3:29: TOML syntax: Error while parsing decimal integer: '99999999999999999999' is not representable in 64 bits"}},
    {"WidthNotMultipleOfHeads", replaced("width = 16", "width = 15"), kTrain,
     {"run.toml:8:1: model.heads: got 2, need a divisor of model.width = 15"}},
    {"HeadsZero", replaced("heads = 2", "heads = 0"), kTrain,
     {"run.toml:8:1: model.heads: got 0, need a whole number from 1 to 1000000"}},
    {"HeldoutOne", replaced("path = \"text.txt\"", "path = \"text.txt\"\nheldout = 1"), kTrain,
     {"run.toml:12:1: data.heldout: got 1, need a number in [0, 1)"}},
    {"LearningRateNegative", appended("[optimizer]\nlr = -1e-3\n"), kTrain,
     {"run.toml:17:1: optimizer.lr: got -0.001, need a finite number > 0"}},
    {"LearningRateNan", appended("[optimizer]\nlr = nan\n"), kTrain,
     {"run.toml:17:1: optimizer.lr: got nan, need a finite number > 0"}},
    {"LearningRateInfinite", appended("[optimizer]\nlr = inf\n"), kTrain,
     {"run.toml:17:1: optimizer.lr: got inf, need a finite number > 0"}},
    {"BetaOne", appended("[optimizer]\nbetas = [0.9, 1.0]\n"), kTrain,
     {"run.toml:17:1: optimizer.betas: got [0.9, 1.0], need two numbers in [0, 1), such as [0.9, 0.999]"}},
    {"BetasThree", appended("[optimizer]\nbetas = [0.9, 0.99, 0.999]\n"), kTrain,
     {"run.toml:17:1: optimizer.betas: got [0.9, 0.99, 0.999], need two numbers in [0, 1), such as [0.9, 0.999]"}},
    {"WarmupLongerThanRun", appended("[schedule]\nwarmup = 3\n"), kTrain,
     {"run.toml:17:1: schedule.warmup: got 3, need at most run.steps = 2"}},
    {"FloorAboveOne", appended("[schedule]\nkind = \"cosine\"\nfloor = 1.5\n"), kTrain,
     {"run.toml:18:1: schedule.floor: got 1.5, need a number in [0, 1]"}},
    {"MaxNormNegative", appended("[clip]\nmax_norm = -1\n"), kTrain,
     {"run.toml:17:1: clip.max_norm: got -1, need a number >= 0 (inf clips nothing)"}},
    {"NormTypeZero", appended("[clip]\nmax_norm = 1\nnorm_type = 0\n"), kTrain,
     {"run.toml:18:1: clip.norm_type: got 0, need a number in (0, inf]"}},
    {"TimeoutZero", appended("[distributed]\ntimeout_s = 0\n"), kTrain,
     {"run.toml:17:1: distributed.timeout_s: got 0, need seconds in (0, 1e7]"}},
    {"ThreadsTooMany", appended("[distributed]\nthreads = 5000\n"), kTrain,
     {"run.toml:17:1: distributed.threads: got 5000, need a whole number from 1 to 1024"}},
    {"BatchBelowRanks", kBase, {"train", "run.toml", "--ranks", "3"},
     {"run.toml:13:1: train.batch: got 2, need at least the number of ranks, 3; every rank must have a row"}},
    {"TemperatureZero", appended("[sample]\ntemperature = 0\n"), kTrain,
     {"run.toml:17:1: sample.temperature: got 0, need a finite number > 0"}},
    // ---- names
    {"SectionMistyped", replaced("[train]", "[trian]"), kTrain,
     {"run.toml:12:2: trian: got an unknown section, need a known one; did you mean [train]?"}},
    {"KeyMistyped", replaced("steps = 2", "setps = 2"), kTrain,
     {"run.toml:1:2: run.steps: got nothing, need a whole number >= 1", "run.toml:3:1: run.setps: got an unknown key, need a key of [run]; did you mean steps?"}},
    {"KeyOfOtherSection", replaced("batch = 2", "batch = 2\nlr = 1e-3"), kTrain,
     {"run.toml:14:1: train.lr: got an unknown key, need a key of [train]; did you mean optimizer.lr?"}},
    {"KindMistyped", replaced("kind = \"gpt\"", "kind = \"gtp\""), kTrain,
     {"run.toml:5:1: model.kind: got \"gtp\", need \"gpt\" or \"mlp\""}},
    {"OptimizerMistyped", appended("[optimizer]\nkind = \"adam\"\n"), kTrain,
     {"run.toml:17:1: optimizer.kind: got \"adam\", need \"adamw\" or \"sgd\""}},
    {"ScheduleMistyped", appended("[schedule]\nkind = \"cosinus\"\n"), kTrain,
     {"run.toml:17:1: schedule.kind: got \"cosinus\", need \"constant\", \"linear\" or \"cosine\""}},
    {"BackendNotBuilt", appended("[distributed]\nbackend = \"nccl\"\n"), kTrain,
     {"run.toml:17:1: distributed.backend: got \"nccl\", need \"auto\" or \"gloo\" (NCCL is not in this build)"}},
    {"NameWithSlash", replaced("name = \"t\"", "name = \"a/b\""), kTrain,
     {"run.toml:2:1: run.name: got \"a/b\", need a plain folder name in quotes, without /"}},
    {"NameEmpty", replaced("name = \"t\"", "name = \"\""), kTrain,
     {"run.toml:2:1: run.name: got \"\", need a plain folder name in quotes, without /"}},
    {"Sha256TooShort", replaced("plugin = \"fsdp_norm\"", "plugin = \"fsdp_norm\"\nsha256 = \"abc\""), kTrain,
     {"run.toml:16:1: precision.sha256: got \"abc\", need 64 hex digits in quotes"}},
    {"KeyInTopLevel", "steps = 2\n" + std::string(kBase), kTrain,
     {"run.toml:1:1: steps: got a key outside of all sections, need it in one; did you mean run.steps?"}},
    // ---- nesting and syntax
    {"KeyTwice", replaced("steps = 2", "steps = 2\nsteps = 3"), kTrain,
     {"run.toml:4:9: TOML syntax: Error while parsing key-value pair: cannot redefine existing integer 'steps'"}},
    {"SectionTwice", appended("[run]\nseed = 1\n"), kTrain,
     {"run.toml:16:1: TOML syntax: Error while parsing table header: cannot redefine existing table 'run'"}},
    {"BracketOpen", replaced("[train]", "[train"), kTrain,
     {"run.toml:12:7: TOML syntax: Error while parsing table header: expected ']', saw '\\n'"}},
    {"QuoteOpen", replaced("\"t\"", "\"t"), kTrain,
     {"run.toml:2:10: TOML syntax: Error while parsing string: unescaped control characters other than TAB (U+0009) are explicitly prohibited"}},
    {"ValueMissing", replaced("steps = 2", "steps ="), kTrain,
     {"run.toml:3:8: TOML syntax: Error while parsing key-value pair: expected value, saw '\\n'"}},
    {"SubsectionUnknown", appended("[optimizer.adam]\nlr = 1\n"), kTrain,
     {"run.toml:16:12: optimizer.adam: got an unknown key, need one of kind, lr, betas, eps, weight_decay, decay, momentum"}},
    {"NestedTooDeep", appended("x = " + std::string(100, '[') + std::string(100, ']') + "\n"), kTrain,
     {"run.toml:16:66: got keys or arrays nested deeper than 64 levels, need the keys of a config: [section] and key = value"}},
    {"NotToml", "{\"run\": {\"name\": \"t\"}}\n", kTrain,
     {"run.toml:1:1: TOML syntax: Error while parsing root table: expected keys, tables, whitespace or comments, saw '{'"}},
    // ---- encodings
    {"ByteOrderMark", "\xEF\xBB\xBF" + std::string(kBase), kTrain,
     {"run.toml:1:1: got a byte order mark, need text saved as UTF-8 without one"}},
    {"Utf16", utf16(kBase), kTrain,
     {"run.toml:1:1: got UTF-16, need text saved as UTF-8"}},
    {"Latin1", replaced("\"t\"", "\"caf\351\""), kTrain,
     {"run.toml:2:11: TOML syntax: Encountered invalid utf-8 sequence"}},
    {"ZeroByte", replaced("steps", std::string("st\0eps", 6)), kTrain,
     {"run.toml:3:3: got a zero byte, need text saved as UTF-8"}},
    {"Empty", "", kTrain,
     {"run.toml:1:1: run.name: got nothing, need a plain folder name in quotes, without /", "run.toml:1:1: run.steps: got nothing, need a whole number >= 1", "run.toml:1:1: model.kind: got nothing, need \"gpt\" or \"mlp\"", "run.toml:1:1: data.path: got nothing, need the path of a text file in quotes", "run.toml:1:1: precision.plugin: got nothing, need the name of a plugin, or a path with a /, in quotes"}},
    {"CarriageReturnOnly", replaced("\n", "\r"), kTrain,
     {"run.toml:1:7: TOML syntax: Error while parsing table header: expected '\\n' after '\\r', saw 'n'"}},
    // ---- conflicts
    {"BothClips", appended("[clip]\nmax_norm = 1\nvalue = 1\n"), kTrain,
     {"run.toml:18:1: clip.value: got both max_norm and value, need one of them"}},
    {"ClipEmpty", appended("[clip]\n"), kTrain,
     {"run.toml:16:2: clip: got neither max_norm nor value, need one of them"}},
    {"MomentumWithAdamw", appended("[optimizer]\nmomentum = 0.9\n"), kTrain,
     {"run.toml:17:1: optimizer.momentum: got 0.9, need it left out: it has no effect with optimizer.kind = \"adamw\""}},
    {"BetasWithSgd", appended("[optimizer]\nkind = \"sgd\"\nbetas = [0.9, 0.99]\n"), kTrain,
     {"run.toml:18:1: optimizer.betas: got [0.9, 0.99], need it left out: it has no effect with optimizer.kind = \"sgd\""}},
    {"FloorWithConstant", appended("[schedule]\nfloor = 0.5\n"), kTrain,
     {"run.toml:17:1: schedule.floor: got 0.5, need it left out: it has no effect with schedule.kind = \"constant\""}},
    {"NormTypeWithValue", appended("[clip]\nvalue = 1\nnorm_type = 2\n"), kTrain,
     {"run.toml:18:1: clip.norm_type: got 2, need it left out: it has no effect with clip.value"}},
    {"ReshardWithoutSharding", appended("[fsdp]\nsharding = \"none\"\nreshard_after_forward = true\n"), kTrain,
     {"run.toml:18:1: fsdp.reshard_after_forward: got true, need it left out: it has no effect with fsdp.sharding = \"none\""}},
    {"ClipKindUnknownToPlugin", appended("[clip]\nvalue = 1\n"), kTrain,
     {"run.toml:17:1: clip.value: plugin fsdp_norm does not clip by value; use max_norm, or a plugin that clips by value"}},
    {"ContextLongerThanText", replaced("context = 8", "context = 5000"), kTrain,
     {"run.toml:11:1: data.path: DIR/text.txt has 1178 bytes to train on (of 1240); need more than model.context = 5000: give a longer text, a smaller context or a smaller data.heldout"}},
    {"SeveralAtOnce", "[run]\nsteps = 0\n[model]\nkind = 3\n[trian]\nbatch = 2\n", kTrain,
     {"run.toml:1:1: data.path: got nothing, need the path of a text file in quotes", "run.toml:1:1: precision.plugin: got nothing, need the name of a plugin, or a path with a /, in quotes", "run.toml:1:2: run.name: got nothing, need a plain folder name in quotes, without /", "run.toml:2:1: run.steps: got 0, need a whole number from 1 to 1000000000000", "run.toml:4:1: model.kind: got 3, need \"gpt\" or \"mlp\"", "run.toml:5:2: trian: got an unknown section, need a known one; did you mean [train]?"}},
    {"MlpOnText", "[run]\nname = \"t\"\nsteps = 2\n[model]\nkind = \"mlp\"\n[data]\npath = \"text.txt\"\n[precision]\nplugin = \"fsdp_norm\"\n", kTrain,
     {"run.toml:6:2: data.kind: got \"text\", need \"generated\" with model.kind = \"mlp\""}},
    {"GptOnGeneratedRows", replaced("path = \"text.txt\"", "kind = \"generated\""), kTrain,
     {"run.toml:11:1: data.kind: got \"generated\", need \"text\" with model.kind = \"gpt\""}},
    {"HeadsOfMlp", "[run]\nname = \"t\"\nsteps = 2\n[model]\nkind = \"mlp\"\nheads = 2\n[data]\nkind = \"generated\"\n[precision]\nplugin = \"fsdp_norm\"\n", kTrain,
     {"run.toml:6:1: model.heads: got 2, need it left out: it has no effect with model.kind = \"mlp\""}},
    {"PathOfGeneratedRows", "[run]\nname = \"t\"\nsteps = 2\n[model]\nkind = \"mlp\"\n[data]\nkind = \"generated\"\npath = \"text.txt\"\n[precision]\nplugin = \"fsdp_norm\"\n", kTrain,
     {"run.toml:8:1: data.path: got \"text.txt\", need it left out: it has no effect with data.kind = \"generated\""}},
    {"SampleOfMlp", "[run]\nname = \"t\"\nsteps = 2\n[model]\nkind = \"mlp\"\n[data]\nkind = \"generated\"\n[precision]\nplugin = \"fsdp_norm\"\n[sample]\n", kTrain,
     {"run.toml:10:2: sample: got a section, need it left out: a model of kind \"mlp\" writes no text"}},
    {"DecayMistyped", appended("[optimizer]\ndecay = \"matrix\"\n"), kTrain,
     {"run.toml:17:1: optimizer.decay: got \"matrix\", need \"all\" or \"matrices\""}},
    // ---- missing files
    {"ConfigMissing", kBase, {"train", "absent.toml"},
     {"absent.toml: cannot be read: No such file or directory; need a TOML file"}},
    {"ConfigIsFolder", kBase, {"train", "."},
     {".: got a folder, need a TOML file"}},
    {"TextMissing", replaced("text.txt", "absent.txt"), kTrain,
     {"run.toml:11:1: data.path: cannot read DIR/absent.txt: No such file or directory; need a text file that this user may read"}},
    {"TextIsFolder", replaced("text.txt", "."), kTrain,
     {"run.toml:11:1: data.path: cannot read DIR/: Is a directory; need a text file that this user may read"}},
    {"TextEmpty", replaced("text.txt", "empty.txt"), kTrain,
     {"run.toml:11:1: data.path: DIR/empty.txt is empty; need a text to train on"}},
    // ---- command lines
    {"NoCommand", kBase, {},
     {"need a command: train, config, plugin, version or completion; see mantissa --help"}},
    {"CommandMistyped", kBase, {"trian", "run.toml"},
     {"unknown command \"trian\"; did you mean train?; see mantissa --help"}},
    {"SubcommandMistyped", kBase, {"config", "chek", "run.toml"},
     {"unknown command \"chek\"; did you mean check?; see mantissa config --help"}},
    {"SubcommandMissing", kBase, {"plugin"},
     {"need a command: list or info; see mantissa plugin --help"}},
    {"ConfigNotNamed", kBase, {"train"},
     {"CONFIG is required; see mantissa train --help"}},
    {"TwoConfigs", kBase, {"train", "run.toml", "run.toml"},
     {"got \"run.toml\" where nothing more was expected; see mantissa train --help"}},
    {"OptionMistyped", kBase, {"train", "run.toml", "--rank", "2"},
     {"unknown option --rank; did you mean --ranks?; see mantissa train --help"}},
    {"OptionOfOtherCommand", kBase, {"config", "check", "run.toml", "--ranks", "2"},
     {"unknown option --ranks; see mantissa config check --help"}},
    {"RanksZero", kBase, {"train", "run.toml", "--ranks", "0"},
     {"--ranks: got \"0\", need a whole number from 1 to 1024; see mantissa train --help"}},
    {"RanksText", kBase, {"train", "run.toml", "--ranks", "two"},
     {"--ranks: got \"two\", need a whole number from 1 to 1024; see mantissa train --help"}},
    {"RanksTooMany", kBase, {"train", "run.toml", "--ranks", "9999"},
     {"--ranks: got \"9999\", need a whole number from 1 to 1024; see mantissa train --help"}},
    {"RanksWithoutValue", kBase, {"train", "run.toml", "--ranks"},
     {"--ranks: got no value, need one: --ranks N; see mantissa train --help"}},
    {"SetWithoutValue", kBase, {"train", "run.toml", "--set"},
     {"--set: got no value, need one: --set KEY=VALUE; see mantissa train --help"}},
    {"SetWithoutEquals", kBase, {"train", "run.toml", "--set", "run.steps"},
     {"--set: got run.steps, need key=value with a dotted key, for example train.batch=8"}},
    {"SetWithoutSection", kBase, {"train", "run.toml", "--set", "steps=3"},
     {"--set: steps: got a key outside of all sections, need it in one; did you mean run.steps?"}},
    {"SetUnknownKey", kBase, {"train", "run.toml", "--set", "run.step=3"},
     {"--set: run.step: got an unknown key, need a key of [run]; did you mean steps?"}},
    {"SetWrongType", kBase, {"train", "run.toml", "--set", "run.steps=ten"},
     {"--set: run.steps: got ten, need a whole number from 1 to 1000000000000"}},
    {"SetEmptyValue", kBase, {"train", "run.toml", "--set", "run.name="},
     {"--set: run.name: got nothing after =, need a TOML value: a string stands in quotes, so for a shell '\"text\"'"}},
    {"ColorUnknown", kBase, {"version", "--color", "sometimes"},
     {"--color: got \"sometimes\", need auto, always or never; see mantissa version --help"}},
    {"QuietAndVerbose", kBase, {"train", "run.toml", "-q", "-v"},
     {"--quiet excludes --verbose; see mantissa train --help"}},
};
// clang-format on

INSTANTIATE_TEST_SUITE_P(Case, BrokenInput, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace mantissa
