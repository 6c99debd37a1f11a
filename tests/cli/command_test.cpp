// Commands of the program that start no ranks: what they print, for people and for programs.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "support/program.h"

namespace mantissa {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kConfig =
    "[run]\nname = \"t\"\nsteps = 2\n[model]\nkind = \"gpt\"\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 8\n"
    "[data]\npath = \"text.txt\"\n[train]\nbatch = 2\n[precision]\nplugin = \"fsdp_norm\"\n";

class Command : public ::testing::Test {
 protected:
  void SetUp() override {
    test::write_file(folder_ / "text.txt", std::string(2000, 'x'));
    test::write_file(folder_ / "run.toml", kConfig);
  }

  test::ProgramResult run(const std::vector<std::string>& arguments,
                          const std::map<std::string, std::string>& environment = {}) {
    return test::run_mantissa(arguments, folder_.path(), environment);
  }
  std::string output(const std::vector<std::string>& arguments) {
    const test::ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  json answer(const std::vector<std::string>& arguments) { return json::parse(output(arguments)); }

  test::TempFolder folder_;
};

TEST_F(Command, Version_AsJson_HasWhatTheTextHas) {
  const json version = answer({"version", "--json"});
  EXPECT_THAT(output({"version"}), HasSubstr("mantissa " + version["mantissa"].get<std::string>() + "\nplugin ABI " +
                                             version["plugin_abi"].get<std::string>() + "\nLibTorch " +
                                             version["libtorch"].get<std::string>() + "\n"));
}

TEST_F(Command, ConfigShow_AsJson_HasEveryLineOfTheText) {
  const json settings = answer({"config", "show", "run.toml", "--set", "run.seed=7", "--json"})["settings"];
  const auto lines = test::lines_of(output({"config", "show", "run.toml", "--set", "run.seed=7"}));
  ASSERT_EQ(settings.size(), lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string key = settings[i]["key"], value = settings[i]["value"], origin = settings[i]["origin"];
    EXPECT_THAT(lines[i], StartsWith(key + " = " + value));
    EXPECT_THAT(lines[i], HasSubstr("  # " + origin));
  }
  EXPECT_EQ(settings[1], json({{"key", "run.seed"}, {"value", "7"}, {"origin", "--set"}}));
}

TEST_F(Command, ConfigCheck_AsJson_TellsEveryProblem) {
  EXPECT_EQ(answer({"config", "check", "run.toml", "--json"})["ok"], true);
  const test::ProgramResult bad =
      run({"config", "check", "run.toml", "--json", "--set", "run.setps=1", "--set", "train.batch=0"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_EQ(bad.err, "");
  const json problems = json::parse(bad.out);
  EXPECT_EQ(problems["ok"], false);
  EXPECT_EQ(problems["exit_code"], 2);
  EXPECT_EQ(problems["errors"].size(), 2u) << problems;
}

TEST_F(Command, ConfigCheck_WithAWrongPluginOption_SaysItBeforeARun) {
  const test::ProgramResult bad = run({"config", "check", "run.toml", "--set", "precision.options.param_dtype=int4"});
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_THAT(bad.err, HasSubstr("--set: precision.options.param_dtype: got \"int4\", need one of"));
}

TEST_F(Command, PluginListAndInfo_AsJson_NameTheSamePlugin) {
  const json plugins = answer({"plugin", "list", "--json"})["plugins"];
  ASSERT_GE(plugins.size(), 1u);
  const auto found = std::find_if(plugins.begin(), plugins.end(), [](const json& p) { return p["id"] == "fsdp_norm"; });
  ASSERT_NE(found, plugins.end());
  const json info = answer({"plugin", "info", "fsdp_norm", "--json"});
  EXPECT_EQ(info["sha256"], (*found)["sha256"]);
  EXPECT_EQ(info["clips_by"], "norm");
  EXPECT_EQ(info["options"][0]["key"], "param_dtype");
  EXPECT_EQ(info["options"][0]["default"], "\"float32\"");
}

TEST_F(Command, PluginInfo_OfNoPluginAsJson_IsAnAnswerToo) {
  const test::ProgramResult bad = run({"plugin", "info", "fsdp_nrom", "--json"});
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_THAT(json::parse(bad.out)["errors"][0].get<std::string>(), HasSubstr("fsdp_norm"));
}

TEST_F(Command, Color_Always_ColorsErrorsAndNoColorDoesNotForbidIt) {
  const std::string escape = "\x1b[";
  EXPECT_THAT(run({"config", "check", "absent.toml", "--color", "always"}).err, HasSubstr(escape));
  EXPECT_THAT(run({"config", "check", "absent.toml"}).err, Not(HasSubstr(escape)));  // no terminal
  EXPECT_THAT(run({"--color", "never", "config", "check", "absent.toml"}).err, Not(HasSubstr(escape)));
  EXPECT_THAT(run({"config", "check", "absent.toml", "--color=always"}, {{"NO_COLOR", "1"}}).err, HasSubstr(escape));
}

TEST_F(Command, Quiet_OfARunThatIsWell_PrintsNothing) {
  const test::ProgramResult result = run({"train", "run.toml", "-q"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out + result.err, "");
  EXPECT_FALSE(test::run_folder(folder_.path()).empty());
}

TEST_F(Command, OutputToAFullDisk_IsAnError) {
  for (const std::string command : {"version", "config show run.toml --json", "train run.toml --dry-run --json"}) {
    test::RunningProgram shell({"/bin/bash", "-c", test::mantissa_program() + " " + command + " >/dev/full"},
                               folder_.path());
    const test::ProgramResult result = shell.wait(std::chrono::seconds(30));
    EXPECT_EQ(result.exit_code, 1) << command;
    EXPECT_EQ(result.err,
              "mantissa: error: the output could not be written: No space left on device; is the disk full?\n");
  }
}

TEST_F(Command, Help_OfEachCommand_NamesItsOptions) {
  for (const auto& [command, option] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{{{}, "--color"},
                                                                     {{"train"}, "--dry-run"},
                                                                     {{"config", "check"}, "--set"},
                                                                     {{"config", "show"}, "--json"},
                                                                     {{"plugin", "list"}, "--json"},
                                                                     {{"plugin", "info"}, "PLUGIN"},
                                                                     {{"completion"}, "fish"},
                                                                     {{"version"}, "--json"}}) {
    std::vector<std::string> arguments = command;
    arguments.push_back("--help");
    EXPECT_THAT(output(arguments), HasSubstr(option));
  }
}

// ---- completion

TEST_F(Command, Completion_OfEachPlace_OffersWhatFits) {
  const auto completed = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"complete", "--"});
    return test::lines_of(output(words));
  };
  EXPECT_THAT(completed({"tr"}), ElementsAre("train"));
  EXPECT_THAT(completed({"config", ""}), ElementsAre("check", "show"));
  EXPECT_THAT(completed({"train", "--dr"}), ElementsAre("--dry-run"));
  EXPECT_THAT(completed({"train", "run.toml", "--set", "run.st"}), ElementsAre("run.steps="));
  EXPECT_THAT(completed({"version", "--color", ""}), ElementsAre("auto", "always", "never"));
  EXPECT_THAT(completed({"plugin", "info", ""}), Contains("fsdp_norm"));
  EXPECT_THAT(completed({"train", ""}), ElementsAre());  // the shell offers files
}

TEST_F(Command, CompletionScript_InBash_FillsTheReply) {
  const auto reply = [&](const std::string& line) {
    const std::string program = std::filesystem::path(test::mantissa_program()).parent_path().string();
    test::write_file(folder_ / "try.sh", "PATH=" + program +
                                             ":$PATH\n"
                                             "source <(mantissa completion bash)\ncompopt() { :; }\n"
                                             "COMP_LINE='" +
                                             line +
                                             "' COMP_POINT=${#COMP_LINE}\nread -ra COMP_WORDS <<<\"$COMP_LINE\"\n"
                                             "[[ $COMP_LINE != *' ' ]] || COMP_WORDS+=('')\n"
                                             "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_mantissa\n"
                                             "printf '%s\\n' \"${COMPREPLY[@]}\"\n");
    test::RunningProgram bash({"/bin/bash", "try.sh"}, folder_.path());
    return test::lines_of(bash.wait(std::chrono::seconds(20)).out);
  };
  EXPECT_THAT(reply("mantissa plug"), ElementsAre("plugin"));
  EXPECT_THAT(reply("mantissa config "), ElementsAre("check", "show"));
  EXPECT_THAT(reply("mantissa train run.toml --set optimizer.w"), ElementsAre("optimizer.weight_decay="));
}

}  // namespace
}  // namespace mantissa
