// The progress bar: what it says in how many columns, and what is left on the screen when others write too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>

#include "base/log.h"
#include "base/said_texts.h"
#include "base/terminal.h"
#include "report/bar_text.h"
#include "report/pace.h"
#include "report/progress_bar.h"
#include "support/pty.h"
#include "support/screen.h"

namespace mantissa {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

const BarNumbers kNumbers{
    .done = 120, .steps = 400, .loss = 3.25, .grad_norm = 1.5, .tokens_per_s = 12345.6, .seconds_left = 156};

std::string hashes(const BarNumbers& numbers, int columns) {
  return bar_text(numbers, {.columns = columns, .blocks = false});
}

// Characters outside color sequences; each takes one column.
size_t width(const std::string& text) {
  test::Screen screen(1000);
  screen.feed(text + "|");
  size_t columns = 0;
  for (const char c : screen.text()) columns += (c & 0xC0) != 0x80;
  return columns - 2;
}

TEST(BarText, WideAndNarrow_ShowsWhatMattersMost) {
  EXPECT_EQ(hashes(kNumbers, 119),
            "120/400  [##############                                  ]  loss 3.2500  norm    1.5"
            "  12,346 tokens/s   2:36 left");
  EXPECT_EQ(hashes(kNumbers, 79), "120/400  [###          ]  loss 3.2500  norm    1.5  12,346 tokens/s   2:36 left");
  EXPECT_EQ(hashes(kNumbers, 39), "120/400 [#     ] loss 3.2500  2:36 left");
  EXPECT_EQ(hashes(kNumbers, 19), "120/400 loss 3.2500");
  EXPECT_EQ(hashes(kNumbers, 7), "120/400");
  EXPECT_EQ(hashes(kNumbers, 6), "");
}

TEST(BarText, Blocks_FillByEighths) {
  const auto blocks = [](int64_t done) {
    return bar_text({.done = done, .steps = 48, .loss = {}, .grad_norm = {}, .tokens_per_s = {}, .seconds_left = {}},
                    {.columns = 14});
  };
  EXPECT_EQ(blocks(0), " 0/48 [      ]");
  EXPECT_EQ(blocks(1), " 1/48 [▏     ]");
  EXPECT_EQ(blocks(12), "12/48 [█▌    ]");
  EXPECT_EQ(blocks(47), "47/48 [█████▉]");
  EXPECT_EQ(blocks(48), "48/48 [██████]");
}

TEST(BarText, Color_IsAroundTheCellsOnly) {
  EXPECT_EQ(bar_text({.done = 24, .steps = 48, .loss = {}, .grad_norm = {}, .tokens_per_s = {}, .seconds_left = {}},
                     {.columns = 14, .blocks = false, .color = true}),
            "24/48 [\x1b[32m###   \x1b[0m]");
}

TEST(BarText, AnyNumbers_NeverTakeMoreColumnsThanThereAre) {
  const std::vector<BarNumbers> all{
      kNumbers,
      {.done = 0, .steps = 1, .loss = {}, .grad_norm = {}, .tokens_per_s = {}, .seconds_left = {}},
      {.done = 1, .steps = 1, .loss = kNan, .grad_norm = kInf, .tokens_per_s = kInf, .seconds_left = kNan},
      {.done = 999999999,
       .steps = 1000000000,
       .loss = 1e300,
       .grad_norm = -1e-300,
       .tokens_per_s = 1e14,
       .seconds_left = 9e8}};
  for (const BarNumbers& numbers : all) {
    for (int columns = 0; columns <= 250; ++columns) {
      for (const bool blocks : {false, true}) {
        const std::string text = bar_text(numbers, {.columns = columns, .blocks = blocks, .color = true});
        ASSERT_LE(width(text), static_cast<size_t>(columns)) << text;
      }
    }
  }
}

TEST(BarText, LongRun_ShowsHours) {
  BarNumbers numbers = kNumbers;
  numbers.seconds_left = 3 * 3600 + 2 * 60 + 5;
  EXPECT_THAT(hashes(numbers, 79), HasSubstr(" 3:02:05 left"));
  numbers.seconds_left = 4.4;
  EXPECT_THAT(hashes(numbers, 79), HasSubstr(" 0:04 left"));
}

TEST(Pace, MeanOfLastSteps_ForgetsTheFirstAndTheOld) {
  Pace pace;
  EXPECT_FALSE(pace.steps_per_s());
  pace.add({.step = 0, .loss = 0, .grad_norm = 0, .seconds = 100, .evaluations_left = 2});
  EXPECT_EQ(*pace.steps_per_s(), 0.01);
  for (int64_t step = 1; step < 10; ++step)
    pace.add({.step = step, .loss = 0, .grad_norm = 0, .seconds = 0.5, .evaluations_left = 2});
  EXPECT_EQ(*pace.steps_per_s(), 2);
  EXPECT_EQ(*pace.seconds_left(50), 20);
  for (int64_t step = 10; step < 10 + int64_t(Pace::kSteps); ++step)
    pace.add({.step = step, .loss = 0, .grad_norm = 0, .seconds = 0.25, .evaluations_left = 2});
  EXPECT_EQ(*pace.steps_per_s(), 4);
  EXPECT_EQ(*pace.seconds_left(50), 5);
  pace.add_evaluation(3);
  EXPECT_EQ(*pace.seconds_left(50), 5 + 3) << "one evaluation is to come";
}

TEST(SaidTexts, SameTextInSeveralForks_IsNewOnce) {
  SaidTexts said;
  int news = said.is_new("other");
  std::vector<pid_t> forks;
  for (int i = 0; i < 4; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(said.is_new("slow") ? 1 : 0);
    forks.push_back(pid);
  }
  for (const pid_t pid : forks) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    news += WEXITSTATUS(status);
  }
  EXPECT_EQ(news, 2);
  EXPECT_FALSE(said.is_new("slow"));
  EXPECT_FALSE(said.is_new("other"));
}

// ---- on a terminal. The child speaks to the screen by the sequences of support/screen.h.

void say(const std::string& text) { EXPECT_EQ(::write(STDOUT_FILENO, text.data(), text.size()), ssize_t(text.size())); }
void snap() { say("\x1b]snap\a"); }

void set_columns(unsigned short columns) {
  winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  ::ioctl(STDOUT_FILENO, TIOCSWINSZ, &size);
  say("\x1b]columns;" + std::to_string(columns) + "\a");
}

// A run of 40 steps with a clock that goes on by a second a step.
class Play {
 public:
  explicit Play(const ProgressOptions& options = {}) : bar_(options, [this] { return now_; }) {
    RunStarted run;
    run.name = "demo";
    run.steps = 40;
    run.tokens_per_step = 1000;
    bar_.started(run);
  }
  void tick(std::chrono::milliseconds pause = 1000ms) {
    now_ += pause;
    bar_.ticked({.step = step_++, .loss = 3.25, .grad_norm = 1.5, .seconds = 1, .evaluations_left = 0});
  }
  void evaluate() {
    StepMetrics metrics;
    metrics.step = step_ - 1;
    metrics.loss = 3.25;
    metrics.val_loss = 1.9;
    metrics.val_bits_per_byte = 2.74112;
    bar_.stepped(metrics);
  }
  ProgressBar& bar() { return bar_; }

 private:
  std::chrono::steady_clock::time_point now_{1h};
  int64_t step_ = 0;
  ProgressBar bar_;
};

// What is to be seen below the lines that tell how the run started.
std::string below_start(const std::string& screen) {
  const size_t end = screen.find("\n\n");
  return end == std::string::npos ? screen : screen.substr(end + 2);
}

struct Seen {
  std::string bytes, last;
  std::vector<std::string> snapshots;
};

Seen in_terminal(unsigned short columns, const std::function<void()>& play) {
  test::TerminalSession session(columns, [&] {
    ::setenv("TERM", "xterm", 1);
    ::setenv("LC_ALL", "C", 1);
    ::setenv("NO_COLOR", "1", 1);
    play();
    return 0;
  });
  EXPECT_EQ(session.wait(20s), 0);
  Seen seen{session.bytes(), below_start(session.screen().text()), {}};
  for (const std::string& text : session.screen().snapshots()) seen.snapshots.push_back(below_start(text));
  return seen;
}

constexpr const char* kAt1 = " 1/40  [               ]  loss 3.2500  norm    1.5   1,000 tokens/s   0:39 left\n";

TEST(ProgressBar, LinesOfOthers_StandAboveTheBar) {
  SKIP_WITHOUT_TERMINALS();
  const Seen seen = in_terminal(80, [] {
    Play play;
    snap();
    play.tick();
    snap();
    log::warning("mind the step");
    snap();
    play.tick();
    snap();
    say(std::string(line_start(STDOUT_FILENO)) + "[rank 1] a line\n");
    play.evaluate();
    snap();
    play.bar().skipped({.step = 2, .reason = "found_inf", .grad_norm = kInf, .loss_scale = 65536});
  });
  const std::string at2 = " 2/40  [               ]  loss 3.2500  norm    1.5   1,000 tokens/s   0:38 left\n";
  ASSERT_EQ(seen.snapshots.size(), 5u);
  EXPECT_EQ(seen.snapshots[0], " 0/40  [" + std::string(48, ' ') + "]\n");
  EXPECT_EQ(seen.snapshots[1], kAt1);
  EXPECT_EQ(seen.snapshots[2], "mantissa: warning: mind the step\n");
  EXPECT_EQ(seen.snapshots[3], "mantissa: warning: mind the step\n" + at2);
  const std::string lines =
      "mantissa: warning: mind the step\n[rank 1] a line\nstep  2/40  held-out 2.7411 bits/byte  loss  3.2500\n";
  EXPECT_EQ(seen.snapshots[4], lines + at2);
  EXPECT_EQ(seen.last, lines + "step  3/40  skipped: found_inf (grad_norm inf, loss_scale 65,536)\n") << "bar is left";
}

TEST(ProgressBar, WindowResized_LeavesNothingOfTheOldBar) {
  SKIP_WITHOUT_TERMINALS();
  const Seen seen = in_terminal(80, [] {
    Play play;
    play.tick();
    set_columns(40);
    log::warning("narrow");
    play.tick();
    snap();
    set_columns(20);
    play.tick();
    snap();
    set_columns(80);
    play.tick();
    snap();
  });
  ASSERT_EQ(seen.snapshots.size(), 3u);
  EXPECT_EQ(seen.snapshots[0], "mantissa: warning: narrow\n 2/40 [        ] loss 3.2500  0:38 left\n");
  EXPECT_THAT(seen.snapshots[1], testing::EndsWith("\n 3/40 loss 3.2500\n"));
  EXPECT_THAT(seen.snapshots[2],
              testing::EndsWith("\n 4/40  [#              ]  loss 3.2500  norm    1.5   1,000 tokens/s"
                                "   0:36 left\n"));
  for (const std::string& snapshot : seen.snapshots) EXPECT_EQ(snapshot.find("left"), snapshot.rfind("left"));
}

TEST(ProgressBar, WindowNarrowerThanAsked_NeverWraps) {
  SKIP_WITHOUT_TERMINALS();
  const Seen seen = in_terminal(80, [] {
    Play play;
    say("\x1b]columns;30\a");  // the terminal has changed, the kernel does not know yet
    play.tick();
    play.tick();
    snap();
  });
  EXPECT_EQ(seen.snapshots.at(0).substr(0, 10), " 2/40  [  ");
  EXPECT_EQ(std::count(seen.snapshots[0].begin(), seen.snapshots[0].end(), '\n'), 1) << seen.snapshots[0];
}

TEST(ProgressBar, TypedKeys_AreGoneWithTheNextUpdate) {
  SKIP_WITHOUT_TERMINALS();
  const Seen seen = in_terminal(80, [] {
    Play play;
    say("^C");
    play.tick();
    snap();
  });
  EXPECT_EQ(seen.snapshots.at(0), kAt1);
}

TEST(ProgressBar, ManyFastSteps_AreDrawnTenTimesASecondAndTheLast) {
  SKIP_WITHOUT_TERMINALS();
  const Seen seen = in_terminal(80, [] {
    Play play;
    for (int i = 0; i < 39; ++i) play.tick(10ms);
    say("\x1b]snap\a");
    play.tick(1ms);
    snap();
  });
  size_t draws = 0;
  for (size_t at = seen.bytes.find("\x1b[?7l"); at != std::string::npos; at = seen.bytes.find("\x1b[?7l", at + 1))
    ++draws;
  EXPECT_EQ(draws, 1u + 3 + 1) << "at the start, thrice in 0.39 s, and the last step";
  EXPECT_THAT(seen.snapshots.at(1), AllOf(HasSubstr("40/40  [###############]"), HasSubstr(" 0:00 left")));
}

TEST(ProgressBar, Finished_LeavesTheSummaryOnly) {
  SKIP_WITHOUT_TERMINALS();
  const Seen seen = in_terminal(80, [] {
    Play play;
    play.tick();
    RunFinished result;
    result.steps = 40;
    play.bar().finished(result);
  });
  EXPECT_THAT(seen.last, AllOf(testing::StartsWith("\ndone: demo, 40 steps in 0 s\n"), Not(HasSubstr("left"))));
}

TEST(ProgressBar, Failed_LeavesTheErrorOnALineOfItsOwn) {
  SKIP_WITHOUT_TERMINALS();
  const Seen seen = in_terminal(80, [] {
    Play play;
    play.tick();
    play.bar().failed("lost", 1);
    say("mantissa: error: lost\n");
  });
  EXPECT_EQ(seen.last, "mantissa: error: lost\n");
}

TEST(ProgressBar, InTheBackground_PrintsLinesInstead) {
  SKIP_WITHOUT_TERMINALS();
  const Seen seen = in_terminal(80, [] {
    ProgressOptions options;
    options.group = ::getpid() + 1;
    Play play(options);
    play.tick();
    play.evaluate();
  });
  EXPECT_THAT(seen.last,
              AllOf(HasSubstr("step  1/40  loss  3.2500  grad_norm"), HasSubstr("held-out 2.7411 bits/byte")));
  EXPECT_THAT(seen.bytes, Not(HasSubstr("\x1b")));
}

TEST(ProgressBar, LocaleWithUtf8_DrawsBlocks) {
  SKIP_WITHOUT_TERMINALS();
  const Seen seen = in_terminal(80, [] {
    ::setenv("LC_ALL", "C.UTF-8", 1);
    Play play;
    for (int i = 0; i < 40; ++i) play.tick();
    snap();
  });
  EXPECT_THAT(seen.snapshots.at(0), HasSubstr("40/40  [███████████████]  loss 3.2500"));
}

TEST(Progress, DumbTerminal_GetsLines) {
  SKIP_WITHOUT_TERMINALS();
  const Seen seen = in_terminal(80, [] {
    ::setenv("TERM", "dumb", 1);
    RunStarted run;
    run.name = "demo";
    run.steps = 40;
    const auto progress = make_progress({});
    progress->started(run);
    progress->ticked({});
    progress->stepped({});
    log::warning("plain");
  });
  EXPECT_THAT(seen.last, AllOf(HasSubstr("step  1/40  loss"), HasSubstr("mantissa: warning: plain")));
  EXPECT_THAT(seen.bytes, Not(HasSubstr("\x1b")));
}

TEST(Progress, Quiet_ShowsNothing) {
  ProgressOptions options;
  options.quiet = true;
  testing::internal::CaptureStdout();
  const auto progress = make_progress(options);
  progress->started({.name = "demo",
                     .folder = "runs/demo/x",
                     .steps = 40,
                     .model = "",
                     .sharding = "",
                     .data = "",
                     .plugin = {},
                     .plugin_name = "",
                     .clip = ""});
  progress->ticked({});
  progress->stepped({});
  progress->skipped({});
  progress->finished({});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Color, AutoAlwaysNever_AsAsked) {
  SKIP_WITHOUT_TERMINALS();
  EXPECT_TRUE(may_color("always", -1));
  EXPECT_FALSE(may_color("never", STDOUT_FILENO));
  EXPECT_FALSE(may_color("auto", -1));
  const Seen seen = in_terminal(80, [] {
    ::setenv("NO_COLOR", "1", 1);
    say(may_color("auto", STDOUT_FILENO) ? "color " : "none ");
    ::setenv("NO_COLOR", "", 1);
    say(may_color("auto", STDOUT_FILENO) ? "color\n" : "none\n");
  });
  EXPECT_EQ(seen.last, "none color\n");
}

}  // namespace
}  // namespace mantissa
