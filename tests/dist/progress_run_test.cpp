// What is left on the screen when the program itself runs in a terminal, with ranks that print and a person that types.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "support/program.h"
#include "support/pty.h"

namespace mantissa {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kBarBegins = "\x1b[?7l";

class ProgressRun : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 600; ++i) text += "In the beginning was line " + std::to_string(i * i % 97) + ".\n";
    test::write_file(folder_ / "text.txt", text);
  }

  void write_config(const std::string& plugin, int steps, const std::string& more = "") {
    test::write_file(folder_ / "run.toml",
                     "[run]\nname = \"t\"\nsteps = " + std::to_string(steps) +
                         "\n[model]\nkind = \"gpt\"\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 16\n[data]\npath = "
                         "\"text.txt\"\n[train]\nbatch = 6\neval_every = 10\n[optimizer]\nkind = \"sgd\"\nlr = 0.1\n"
                         "[precision]\nplugin = \"" +
                         plugin + "\"\n[log]\nevery = 5\n" + more);
  }

  // `script` is run by bash; $MANTISSA is the program.
  std::unique_ptr<test::TerminalSession> in_terminal(unsigned short columns, const std::string& script) {
    return std::make_unique<test::TerminalSession>(columns, [this, script] {
      if (::chdir(folder_.path().c_str()) != 0) return 126;
      ::setenv("TERM", "xterm", 1);
      ::setenv("LC_ALL", "C", 1);
      ::setenv("NO_COLOR", "1", 1);
      ::setenv("MANTISSA", test::mantissa_program().c_str(), 1);
      ::execlp("bash", "bash", "--norc", "-c", script.c_str(), nullptr);
      return 127;
    });
  }

  test::TempFolder folder_;
};

// Every line that the screen shows is one of these, from its beginning to its end.
void expect_whole_lines(const std::string& screen) {
  for (const std::string& line : test::lines_of(screen)) {
    EXPECT_THAT(line, ::testing::MatchesRegex(
                          "|(training|done:|next|mantissa: (warning|error):|.rank 1. mantissa: warning:) ?.*"
                          "|  +[a-z0-9].*"
                          "|step +[0-9]+/[0-9]+  held-out [0-9.]+ bits/byte  loss +[0-9.]+"));
  }
}

TEST_F(ProgressRun, TwoRanksThatWarn_LeaveWholeLinesAndNoBar) {
  SKIP_WITHOUT_TERMINALS();
  write_config("fsdp_norm", 30, "[plugins]\nslow_ms = 0\n");  // every slot is slow: both ranks have warnings
  const auto session = in_terminal(200, "$MANTISSA train run.toml --ranks 2");
  ASSERT_EQ(session->wait(), 0) << session->bytes();
  const std::string screen = session->screen().text();
  expect_whole_lines(screen);
  EXPECT_THAT(session->bytes(), HasSubstr("30/30  [####"));
  EXPECT_THAT(screen,
              AllOf(HasSubstr("step 10/30  held-out"), HasSubstr("step 20/30  held-out"),
                    HasSubstr("step 30/30  held-out"), HasSubstr("\ndone: t, 30 steps"), Not(HasSubstr(" left"))));
  size_t clips = 0;
  for (const std::string& line : test::lines_of(screen)) clips += line.find("clip took") != std::string::npos;
  EXPECT_EQ(clips, 1u) << "a warning that both ranks have is said once\n" << screen;
}

TEST_F(ProgressRun, WindowResizedOnTheWay_LeavesWholeLines) {
  SKIP_WITHOUT_TERMINALS();
  write_config("fsdp_norm", 4000);
  const auto session = in_terminal(80, "exec $MANTISSA train run.toml --ranks 2");
  for (const unsigned short columns : {40, 20, 80}) {
    ASSERT_TRUE(session->wait_for(kBarBegins)) << session->bytes();
    session->resize(columns);
    ASSERT_TRUE(session->wait_for(kBarBegins)) << session->bytes();
  }
  ASSERT_TRUE(session->wait_for(kBarBegins));
  session->type("\x03");
  EXPECT_EQ(session->wait(), 130);
  const std::string screen = session->screen().text();
  EXPECT_THAT(screen, AllOf(HasSubstr("\nstopped by SIGINT: t, after "), Not(HasSubstr("/4000 [")),
                            HasSubstr("\nmantissa: error: stopped after the step, as asked")));
}

TEST_F(ProgressRun, RunThatFails_LeavesTheErrorOnALineOfItsOwn) {
  SKIP_WITHOUT_TERMINALS();
  write_config(MANTISSA_BUILD_DIR "/tests/plugins/libmantissa-aborts_at_step_3.so", 30, "[clip]\nmax_norm = 0.05\n");
  for (const char* ranks : {"1", "2"}) {
    const auto session = in_terminal(200, std::string("exec $MANTISSA train run.toml --ranks ") + ranks);
    EXPECT_EQ(session->wait(), 5);
    EXPECT_THAT(session->screen().text(), HasSubstr("\nmantissa: error: step 3: plugin aborts_at_step_3 gave up"));
    EXPECT_THAT(session->screen().text(), Not(HasSubstr("/30  [")));
  }
}

// 'T': stopped. All processes of a session that run the program.
std::string states_in_session(pid_t session) {
  std::string states;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string pid, name, state;
    pid_t parent = 0, group = 0, of = 0;
    if (stat >> pid >> name >> state >> parent >> group >> of && of == session && name == "(mantissa)") states += state;
  }
  return states;
}

TEST_F(ProgressRun, CtrlZAndFg_StopsAllRanksAndGoesOn) {
  SKIP_WITHOUT_TERMINALS();
  write_config("fsdp_norm", 100000);
  for (const std::string ranks : {"1", "2"}) {
    const auto session = in_terminal(80, "set -m; $MANTISSA train run.toml --ranks " + ranks +
                                             "; echo code $?; read -r; fg >/dev/null; echo code $?");
    ASSERT_TRUE(session->wait_for(kBarBegins) && session->wait_for(kBarBegins)) << session->bytes();
    session->type("\x1a");
    ASSERT_TRUE(session->wait_for("code 148")) << session->bytes();
    EXPECT_THAT(states_in_session(session->pid()), ::testing::MatchesRegex("TT*"));
    EXPECT_THAT(session->screen().text(), Not(HasSubstr(" left"))) << "the bar is still there";
    session->type("\n");
    ASSERT_TRUE(session->wait_for(kBarBegins)) << session->bytes();
    session->type("\x03");
    EXPECT_TRUE(session->wait_for("code 130")) << session->bytes();
    EXPECT_EQ(session->wait(), 0);
    EXPECT_THAT(session->screen().text(), AllOf(HasSubstr("\nstopped by SIGINT: t, after "), Not(HasSubstr(" left"))));
  }
}

TEST_F(ProgressRun, InTheBackground_PrintsLinesAndNoBar) {
  SKIP_WITHOUT_TERMINALS();
  write_config("fsdp_norm", 10);
  const auto session = in_terminal(200, "set -m; $MANTISSA train run.toml --ranks 2 & wait");
  ASSERT_EQ(session->wait(), 0) << session->bytes();
  EXPECT_THAT(session->screen().text(), AllOf(HasSubstr("step  5/10  loss"), HasSubstr("done: t, 10 steps")));
  EXPECT_THAT(session->bytes(), Not(HasSubstr(kBarBegins)));
}

TEST_F(ProgressRun, TerminalThatStopsBackgroundWriters_DoesNotStopRanks) {
  SKIP_WITHOUT_TERMINALS();
  write_config("fsdp_norm", 10);
  const auto session = in_terminal(200, "stty tostop; set -m; $MANTISSA train run.toml --ranks 2");
  ASSERT_EQ(session->wait(), 0) << session->bytes();
  EXPECT_THAT(session->screen().text(), HasSubstr("done: t, 10 steps"));
}

TEST_F(ProgressRun, OutputInAPipe_HasNoControlCharacters) {
  SKIP_WITHOUT_TERMINALS();
  write_config("fsdp_norm", 10, "[plugins]\nslow_ms = 0\n");
  const auto result = test::run_mantissa({"train", "run.toml", "--ranks", "2"}, folder_.path(),
                                         {{"TERM", "xterm"}, {"COLORTERM", "1"}});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char c : result.out + result.err)
    EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << int(c);
  EXPECT_THAT(result.out, HasSubstr("step 10/10  loss"));
}

}  // namespace
}  // namespace mantissa
