// Faults of ranks: whatever one of them does, all end, within a limit, with the rank and the cause in the last line and
// the right exit code, and no process is left. At 2 and at 4 ranks, and without a launcher.
//
// Every test prints a line `fault | ranks | exit | seconds | last line`, seconds counted from the fault. All of them:
//
//   build/release/tests/fault_test | grep ' | '
#include <pty.h>
#include <sys/resource.h>
#include <termios.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <regex>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "support/program.h"
#include "support/pty.h"

namespace mantissa {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kTimeoutSeconds = 3;  // distributed.timeout_s
// Time that a fault may take: a rank that left is noticed at once, and its peers look for the cause for a second or
// two; one that hangs is noticed at the time limit of the ranks, and its launcher ends it 6 s later. On top: a busy
// machine.
constexpr double kBusy = 40;
constexpr double kNoticedAtOnce = 4 + kBusy, kNoticedAtTheLimit = kTimeoutSeconds + 8 + kBusy;
constexpr seconds kStart(90), kEnd(80);

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Processes that carry `marker` in their environment, as everything that a test has started does.
std::vector<pid_t> processes_with(const std::string& marker) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    // A zombie's environment is empty.
    if (test::read_file(entry.path() / "environ").find(marker) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

std::string last_line(const std::string& text) {
  const auto lines = test::lines_of(text);
  return lines.empty() ? "" : lines.back();
}

struct Expected {
  int exit_code = 1;
  std::string last_line;  // what it contains
  double limit = kNoticedAtOnce;
};

class Faults : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 600; ++i) text += "In the beginning was line " + std::to_string(i * i % 97) + ".\n";
    test::write_file(folder_ / "text.txt", text);
    write_config("fsdp_norm");
  }

  void write_config(const std::string& plugin, int steps = 100000, int timeout = kTimeoutSeconds) {
    test::write_file(
        folder_ / "run.toml",
        "[run]\nname = \"t\"\nsteps = " + std::to_string(steps) +
            "\n[model]\nkind = \"gpt\"\nlayers = 2\nwidth = 16\nheads = 2\ncontext = 16\n[data]\npath = \"text.txt\"\n"
            "[train]\nbatch = 8\neval_every = 0\n[optimizer]\nkind = \"sgd\"\nlr = 0.1\nweight_decay = 0.0\n"
            "[precision]\nplugin = \"" +
            plugin + "\"\n[clip]\nmax_norm = 0.05\n[log]\nevery = 1\n[distributed]\ntimeout_s = " +
            std::to_string(timeout) + "\n");
  }

  static std::string test_plugin(const std::string& name) {
    return MANTISSA_BUILD_DIR "/tests/plugins/libmantissa-" + name + ".so";
  }

  std::map<std::string, std::string> environment() const { return {{"MANTISSA_FAULT_TEST", marker_}}; }
  std::vector<std::string> train(int ranks) const {
    return {test::mantissa_program(), "train", "run.toml", "--ranks", std::to_string(ranks)};
  }
  static std::vector<std::string> faulty_ranks(const std::string& fault, int victim, int ranks) {
    return {MANTISSA_BUILD_DIR "/tests/faulty_ranks", fault, std::to_string(victim), std::to_string(ranks),
            std::to_string(kTimeoutSeconds)};
  }
  static std::vector<std::string> in_shell(const std::string& script) { return {"/bin/bash", "-c", script}; }

  // A program that runs and has made its first steps.
  std::unique_ptr<test::RunningProgram> begin(const std::vector<std::string>& arguments) {
    auto program = std::make_unique<test::RunningProgram>(arguments, folder_.path(), environment());
    begun_ = Clock::now();
    return program;
  }
  std::unique_ptr<test::RunningProgram> begin_training(int ranks) {
    auto program = begin(train(ranks));
    EXPECT_TRUE(program->wait_for("2/", kStart));
    ranks_ = test::children_of(program->pid());
    begun_ = Clock::now();
    return program;
  }

  void expect_end(test::RunningProgram& program, int ranks, const Expected& expected) {
    const test::ProgramResult result = program.wait(kEnd);
    const double took = seconds_since(begun_);
    print_row(ranks, result.exit_code, took, last_line(result.err));
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.exit_code, expected.exit_code) << result.err;
    EXPECT_THAT(last_line(result.err), HasSubstr(expected.last_line)) << result.err;
    EXPECT_LT(took, expected.limit);
    expect_nothing_left();
  }

  void expect_nothing_left() {
    // Whoever dies of its parent's death is still on its way for a moment.
    const auto deadline = Clock::now() + seconds(10);
    while (!processes_with(marker_).empty() && Clock::now() < deadline) std::this_thread::yield();
    const std::vector<pid_t> left = processes_with(marker_);
    EXPECT_TRUE(left.empty()) << left.size() << " processes are left";
    for (const pid_t pid : left) kill(pid, SIGKILL);
  }

  static void print_row(int ranks, int exit_code, double took, const std::string& line) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::printf("%s | %d | %d | %.1f | %s\n", test->name(), ranks, exit_code, took, line.c_str());
    std::fflush(stdout);
  }

  test::TempFolder folder_;
  const std::string marker_ = "mantissa-fault-" + folder_.path().filename().string();
  std::vector<pid_t> ranks_;
  Clock::time_point begun_;
};

std::string ranks_text(int ranks) { return "At" + std::to_string(ranks) + "Ranks"; }

// ---- a rank of `mantissa train` is hit from outside

struct Hit {
  const char* name;
  int signal;
  bool rank_0;  // or the last one
  Expected expected;
};
void PrintTo(const Hit& value, std::ostream* out) { *out << value.name; }

class RankIsHit : public Faults, public ::testing::WithParamInterface<std::tuple<Hit, int>> {};

TEST_P(RankIsHit, EndsAll) {
  const auto& [hit, ranks] = GetParam();
  const int victim = hit.rank_0 ? 0 : ranks - 1;
  auto program = begin_training(ranks);
  ASSERT_EQ(ranks_.size(), static_cast<size_t>(ranks));
  kill(ranks_[static_cast<size_t>(victim)], hit.signal);
  Expected expected = hit.expected;
  if (expected.exit_code == 1) expected.last_line = "error: rank " + std::to_string(victim) + " " + expected.last_line;
  expect_end(*program, ranks, expected);
  if (expected.exit_code != 1) return;
  // The launcher writes it, so that it stands there even if rank 0 is killed, and names the right rank.
  EXPECT_THAT(test::read_file(test::run_folder(folder_.path()) / "events.jsonl"),
              HasSubstr("\"cause\":\"rank " + std::to_string(victim)));
}

INSTANTIATE_TEST_SUITE_P(
    Signals, RankIsHit,
    ::testing::Combine(::testing::Values(Hit{"Rank0Stopped", SIGSTOP, true, {1, "hung", kNoticedAtTheLimit}},
                                         Hit{"LastRankStopped", SIGSTOP, false, {1, "hung", kNoticedAtTheLimit}},
                                         Hit{"Rank0Killed", SIGKILL, true, {1, "was killed by signal 9"}},
                                         Hit{"LastRankKilled", SIGKILL, false, {1, "was killed by signal 9"}},
                                         Hit{"LastRankSegfault", SIGSEGV, false, {1, "was killed by signal 11"}},
                                         Hit{"LastRankAborts", SIGABRT, false, {1, "was killed by signal 6"}},
                                         Hit{"SigtermToLastRank", SIGTERM, false, {143, "stopped after the step"}},
                                         Hit{"SigintToLastRank", SIGINT, false, {130, "stopped after the step"}},
                                         Hit{"SighupToRank0", SIGHUP, true, {129, "stopped after the step"}}),
                       ::testing::Values(2, 4)),
    [](const auto& instance) { return std::get<0>(instance.param).name + ranks_text(std::get<1>(instance.param)); });

class AtRanks : public Faults, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AtRanks, ::testing::Values(2, 4),
                         [](const auto& instance) { return ranks_text(instance.param); });

// ---- signals to the launcher

struct Stop {
  const char* name;
  int signal;
  int exit_code;
};
void PrintTo(const Stop& value, std::ostream* out) { *out << value.name; }

class LauncherIsStopped : public Faults, public ::testing::WithParamInterface<std::tuple<Stop, int>> {};

TEST_P(LauncherIsStopped, EndsAllAfterTheStep) {
  const auto& [stop, ranks] = GetParam();
  auto program = begin_training(ranks);
  kill(program->pid(), stop.signal);
  expect_end(*program, ranks, {stop.exit_code, "stopped after the step, as asked; nothing was saved"});
  EXPECT_THAT(test::read_file(test::run_folder(folder_.path()) / "events.jsonl"),
              HasSubstr("\"event\":\"stop\",\"exit_code\":" + std::to_string(stop.exit_code)));
}

INSTANTIATE_TEST_SUITE_P(
    Signals, LauncherIsStopped,
    ::testing::Combine(::testing::Values(Stop{"SigintToLauncher", SIGINT, 130}, Stop{"SigtermToLauncher", SIGTERM, 143},
                                         Stop{"SighupToLauncher", SIGHUP, 129}),
                       ::testing::Values(2, 4)),
    [](const auto& instance) { return std::get<0>(instance.param).name + ranks_text(std::get<1>(instance.param)); });

// One rank cannot stop in order, and the others would wait for it for an hour.
TEST_P(AtRanks, SecondSigterm_EndsAtOnce) {
  write_config("fsdp_norm", 100000, 3600);
  auto program = begin_training(GetParam());
  ASSERT_EQ(ranks_.size(), static_cast<size_t>(GetParam()));
  kill(ranks_[1], SIGSTOP);
  std::atomic<bool> ended = false;
  std::thread impatient([&] {
    while (!ended) {
      kill(program->pid(), SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // as people do
    }
  });
  const test::ProgramResult result = program->wait(kEnd);
  ended = true;
  impatient.join();
  print_row(GetParam(), result.exit_code, seconds_since(begun_), last_line(result.err));
  EXPECT_EQ(result.exit_code, 143) << result.err;
  EXPECT_THAT(last_line(result.err), HasSubstr("stopped by signal 15"));
  expect_nothing_left();
}

// timeout(1) sends SIGTERM to the process and to its group: that is one request.
TEST_P(AtRanks, SigtermTwiceInAMoment_StopsInOrder) {
  auto program = begin_training(GetParam());
  kill(program->pid(), SIGSTOP);  // so that it finds both together
  kill(program->pid(), SIGTERM);
  for (const pid_t rank : ranks_) kill(rank, SIGTERM);
  kill(program->pid(), SIGTERM);
  kill(program->pid(), SIGCONT);
  expect_end(*program, GetParam(), {143, "stopped after the step"});
}

TEST_P(AtRanks, LauncherKilled_TakesItsRanksAlong) {
  auto program = begin_training(GetParam());
  kill(program->pid(), SIGKILL);
  expect_end(*program, GetParam(), {137, ""});
}

// ---- terminals and pipes

// The bar is drawn every tenth of a second: which steps it shows is chance.
constexpr char kAnyStep[] = "[1-9][0-9]*/[1-9]";

// `arguments` as the first program of a terminal of its own, stderr in a file.
class InTerminal {
 public:
  InTerminal(std::vector<std::string> arguments, const std::filesystem::path& folder, const std::string& marker,
             bool hangup_ignored = false, bool stops_background = false) {
    pid_ = forkpty(&master_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    if (stops_background) {
      termios settings{};
      tcgetattr(0, &settings);
      settings.c_lflag |= TOSTOP;
      tcsetattr(0, TCSANOW, &settings);
    }
    if (hangup_ignored) signal(SIGHUP, SIG_IGN);
    if (chdir(folder.c_str()) != 0) _exit(126);
    dup2(open("err.txt", O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
    setenv("MANTISSA_FAULT_TEST", marker.c_str(), 1);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  InTerminal(const InTerminal&) = delete;
  ~InTerminal() {
    close_terminal();
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
  }

  bool wait_for(const std::string& pattern, Clock::time_point deadline) {
    const std::regex sought(pattern);
    while (!std::regex_search(shown_, sought)) {
      pollfd ready{master_, POLLIN, 0};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) return false;
      char buffer[4096];
      const ssize_t size = read(master_, buffer, sizeof buffer);
      if (size <= 0) return false;
      shown_.append(buffer, static_cast<size_t>(size));
    }
    return true;
  }
  void close_terminal() {
    if (master_ >= 0) close(std::exchange(master_, -1));
  }
  /// The exit code, or -1 at the deadline.
  int wait(Clock::time_point deadline) {
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) return -1;
      std::this_thread::yield();
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const std::string& shown() const { return shown_; }

 private:
  pid_t pid_ = -1;
  int master_ = -1;
  std::string shown_;
};

TEST_P(AtRanks, TerminalClosed_StopsAfterTheStep) {
  SKIP_WITHOUT_TERMINALS();
  InTerminal terminal(train(GetParam()), folder_.path(), marker_);
  ASSERT_TRUE(terminal.wait_for(kAnyStep, Clock::now() + kStart)) << terminal.shown();
  begun_ = Clock::now();
  terminal.close_terminal();
  const int exit_code = terminal.wait(Clock::now() + kEnd);
  const std::string last = last_line(test::read_file(folder_ / "err.txt"));
  print_row(GetParam(), exit_code, seconds_since(begun_), last);
  EXPECT_EQ(exit_code, 129);
  EXPECT_THAT(last, HasSubstr("stopped after the step"));
  EXPECT_THAT(test::read_file(test::run_folder(folder_.path()) / "events.jsonl"), HasSubstr("\"SIGHUP\""));
  expect_nothing_left();
}

TEST_P(AtRanks, TerminalClosedUnderNohup_GoesOnToTheEnd) {
  SKIP_WITHOUT_TERMINALS();
  write_config("fsdp_norm", 120);
  InTerminal terminal(train(GetParam()), folder_.path(), marker_, /*hangup_ignored=*/true);
  ASSERT_TRUE(terminal.wait_for(kAnyStep, Clock::now() + kStart)) << terminal.shown();
  begun_ = Clock::now();
  terminal.close_terminal();
  const int exit_code = terminal.wait(Clock::now() + kEnd);
  print_row(GetParam(), exit_code, seconds_since(begun_), last_line(test::read_file(folder_ / "err.txt")));
  EXPECT_EQ(exit_code, 0) << test::read_file(folder_ / "err.txt");
  EXPECT_TRUE(std::filesystem::exists(test::run_folder(folder_.path()) / "weights.safetensors"));
  expect_nothing_left();
}

// `stty tostop`: who is not in front is stopped when it writes. Ranks are in a process group of their own.
TEST_P(AtRanks, TerminalThatStopsTheBackground_StopsNoRank) {
  SKIP_WITHOUT_TERMINALS();
  write_config("fsdp_norm", 4);
  InTerminal terminal(train(GetParam()), folder_.path(), marker_, false, /*stops_background=*/true);
  begun_ = Clock::now();
  EXPECT_TRUE(terminal.wait_for("run again", Clock::now() + kEnd)) << terminal.shown();
  const int exit_code = terminal.wait(Clock::now() + kEnd);
  print_row(GetParam(), exit_code, seconds_since(begun_), last_line(test::read_file(folder_ / "err.txt")));
  EXPECT_EQ(exit_code, 0);
  expect_nothing_left();
}

std::string shell_train(int ranks) {
  return test::mantissa_program() + " train run.toml --ranks " + std::to_string(ranks);
}

// Rank 1 writes through the launcher, which must not die of the broken pipe.
TEST_P(AtRanks, ReaderOfStdoutGone_GoesOnToTheEnd) {
  write_config(test_plugin("prints_on_rank_1"), 12);
  auto program = begin(in_shell(shell_train(GetParam()) + " | head -n 1; exit ${PIPESTATUS[0]}"));
  expect_end(*program, GetParam(), {0, "", 80});
}

TEST_P(AtRanks, ReaderOfStderrGone_KeepsTheExitCode) {
  write_config(test_plugin("crashes_in_clip_on_rank_1"));
  auto program = begin(in_shell(shell_train(GetParam()) + " 2>&1 | head -n 1; exit ${PIPESTATUS[0]}"));
  expect_end(*program, GetParam(), {1, "", 80});
}

// ---- the run folder

TEST_P(AtRanks, MetricsCannotGrow_IsSaid) {
  auto program = begin(in_shell("ulimit -f 24; exec " + shell_train(GetParam())));
  expect_end(*program, GetParam(), {1, "metrics.jsonl: File too large", 80});
}

TEST_P(AtRanks, WeightsCannotBeWritten_IsSaid) {
  write_config("fsdp_norm", 2);
  auto program = begin(in_shell("ulimit -f 64; exec " + shell_train(GetParam()) + " --set model.width=64"));
  expect_end(*program, GetParam(), {1, "weights.safetensors: File too large", 80});
}

TEST_P(AtRanks, RunFolderDeleted_IsNoticedAtTheNextRow) {
  auto program = begin_training(GetParam());
  std::filesystem::remove_all(folder_ / "runs");
  expect_end(*program, GetParam(), {1, "metrics.jsonl: No such file or directory"});
}

// ---- in a slot of a plugin

struct InSlot {
  const char* plugin;
  Expected expected;
};
void PrintTo(const InSlot& value, std::ostream* out) { *out << value.plugin; }

class SlotMisbehaves : public Faults, public ::testing::WithParamInterface<std::tuple<InSlot, int>> {};

TEST_P(SlotMisbehaves, EndsAll) {
  const auto& [fault, ranks] = GetParam();
  write_config(test_plugin(fault.plugin));
  auto program = begin_training(ranks);
  expect_end(*program, ranks, fault.expected);
}

INSTANTIATE_TEST_SUITE_P(
    Plugins, SlotMisbehaves,
    ::testing::Combine(::testing::Values(InSlot{"throws_in_clip_on_rank_1", {1, "thrown in a slot"}},
                                         InSlot{"leaves_in_clip_on_rank_1", {1, "rank 1 left early with exit code 0"}},
                                         InSlot{"crashes_in_clip_on_rank_1", {1, "rank 1 was killed by signal 11"}},
                                         InSlot{"loops_in_clip_on_rank_1", {1, "rank 1 hung", kNoticedAtTheLimit}}),
                       ::testing::Values(2, 4)),
    [](const auto& instance) { return std::get<0>(instance.param).plugin + ranks_text(std::get<1>(instance.param)); });

// ---- in a program on the library

struct InLibrary {
  const char* fault;
  bool rank_0;
  Expected expected;
};
void PrintTo(const InLibrary& value, std::ostream* out) { *out << value.fault; }

class LibraryMisbehaves : public Faults, public ::testing::WithParamInterface<std::tuple<InLibrary, int>> {};

TEST_P(LibraryMisbehaves, EndsAll) {
  const auto& [fault, ranks] = GetParam();
  const int victim = fault.rank_0 ? 0 : ranks - 1;
  auto program = begin(faulty_ranks(fault.fault, victim, ranks));
  ASSERT_TRUE(program->wait_for("step 2", kStart));
  begun_ = Clock::now();
  Expected expected = fault.expected;
  if (expected.last_line.starts_with("V ")) {
    expected.last_line = "error: rank " + std::to_string(victim) + expected.last_line.substr(1);
  }
  expect_end(*program, ranks, expected);
}

// "V": the victim.
INSTANTIATE_TEST_SUITE_P(
    Library, LibraryMisbehaves,
    ::testing::Combine(
        ::testing::Values(InLibrary{"throws_in_forward", true, {1, "V failed: thrown in forward"}},
                          InLibrary{"throws_in_forward", false, {1, "V failed: thrown in forward"}},
                          InLibrary{"throws_in_hook", true, {1, "V failed: thrown in a hook"}},
                          InLibrary{"throws_in_hook", false, {1, "V failed: thrown in a hook"}},
                          InLibrary{"throws_on_a_thread", true, {1, "V failed: an exception on a thread"}},
                          InLibrary{"throws_on_a_thread", false, {1, "V failed: an exception on a thread"}},
                          InLibrary{"exits", false, {1, "V left early with exit code 0"}},
                          InLibrary{"exits_at_once", true, {1, "V left early with exit code 0"}},
                          InLibrary{"exits_at_once", false, {1, "V left early with exit code 0"}},
                          InLibrary{"returns", true, {1, "V ended before the others were done"}},
                          InLibrary{"returns", false, {1, "V ended before the others were done"}},
                          InLibrary{"aborts", false, {1, "V was killed by signal 6"}},
                          InLibrary{"loops", true, {1, "V hung", kNoticedAtTheLimit}},
                          InLibrary{"loops", false, {1, "V hung", kNoticedAtTheLimit}},
                          InLibrary{"bad_alloc", false, {1, "V failed: out of memory"}},
                          InLibrary{"out_of_memory", true, {1, "V failed: out of memory"}},
                          InLibrary{"out_of_memory", false, {1, "V failed: out of memory"}},
                          InLibrary{"other_unit_of_same_size", false, {1, "rank 0 and rank "}},
                          InLibrary{"other_unit_of_other_size", false, {1, "different", kNoticedAtTheLimit}},
                          InLibrary{"leaves_a_unit_out", false, {1, "rank ", kNoticedAtTheLimit}}),
        ::testing::Values(2, 4)),
    [](const auto& instance) {
      const InLibrary& fault = std::get<0>(instance.param);
      return std::string(fault.fault) + (fault.rank_0 ? "_on_rank_0_" : "_on_the_last_rank_") +
             ranks_text(std::get<1>(instance.param));
    });

// ---- without a launcher

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

class ByHand : public Faults {
 protected:
  std::unique_ptr<test::RunningProgram> start(const std::vector<std::string>& arguments, int rank) {
    std::map<std::string, std::string> variables = environment();
    variables["RANK"] = std::to_string(rank);
    variables["WORLD_SIZE"] = "2";
    variables["MASTER_ADDR"] = "127.0.0.1";
    variables["MASTER_PORT"] = std::to_string(port_);
    return std::make_unique<test::RunningProgram>(arguments, folder_.path(), variables);
  }
  const int port_ = free_port();
};

struct HandHit {
  const char* name;
  int signal;
  int victim;
  Expected survivor;
};
void PrintTo(const HandHit& value, std::ostream* out) { *out << value.name; }

class HandStartedRankIsHit : public ByHand, public ::testing::WithParamInterface<HandHit> {};

TEST_P(HandStartedRankIsHit, SurvivorNamesIt) {
  const HandHit& hit = GetParam();
  std::unique_ptr<test::RunningProgram> ranks[2];
  for (int rank = 0; rank < 2; ++rank) ranks[rank] = start({test::mantissa_program(), "train", "run.toml"}, rank);
  ASSERT_TRUE(ranks[0]->wait_for("2/", kStart));
  begun_ = Clock::now();
  kill(ranks[hit.victim]->pid(), hit.signal);
  const test::ProgramResult survivor = ranks[1 - hit.victim]->wait(kEnd);
  const double took = seconds_since(begun_);
  print_row(2, survivor.exit_code, took, last_line(survivor.err));
  EXPECT_EQ(survivor.exit_code, 1) << survivor.err;
  EXPECT_THAT(last_line(survivor.err), HasSubstr(hit.survivor.last_line)) << survivor.err;
  EXPECT_LT(took, hit.survivor.limit);
}

INSTANTIATE_TEST_SUITE_P(
    Signals, HandStartedRankIsHit,
    ::testing::Values(HandHit{"Rank0KilledByHand", SIGKILL, 0, {1, "error: rank 0"}},
                      HandHit{"Rank1KilledByHand", SIGKILL, 1, {1, "error: rank 1"}},
                      HandHit{"Rank0StoppedByHand", SIGSTOP, 0, {1, "error: rank 0", kNoticedAtTheLimit}},
                      HandHit{"Rank1StoppedByHand", SIGSTOP, 1, {1, "error: rank 1", kNoticedAtTheLimit}}),
    [](const auto& instance) { return instance.param.name; });

// A program on the library whose main catches nothing.
class HandStartedProgram : public ByHand, public ::testing::WithParamInterface<const char*> {};

TEST_P(HandStartedProgram, UncaughtException_IsHeardByThePeer) {
  std::unique_ptr<test::RunningProgram> ranks[2];
  for (int rank = 0; rank < 2; ++rank) ranks[rank] = start(faulty_ranks(GetParam(), 1, 0), rank);
  ASSERT_TRUE(ranks[0]->wait_for("step 2", kStart));
  begun_ = Clock::now();
  for (int rank = 1; rank >= 0; --rank) {
    const test::ProgramResult result = ranks[rank]->wait(kEnd);
    if (rank == 0) print_row(2, result.exit_code, seconds_since(begun_), last_line(result.err));
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(last_line(result.err), HasSubstr("thrown "));
    if (rank == 0) {
      EXPECT_THAT(last_line(result.err), HasSubstr("rank 1"));
    }
  }
  expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(Library, HandStartedProgram,
                         ::testing::Values("throws_in_forward", "throws_in_hook", "throws_on_a_thread"),
                         [](const auto& instance) { return std::string(instance.param) + "_by_hand"; });

}  // namespace
}  // namespace mantissa
