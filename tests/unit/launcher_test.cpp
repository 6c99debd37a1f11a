// The launcher with real processes. No test sleeps to order things: ranks tell what they are through shared memory.
#include "comm/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <new>
#include <sstream>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "comm/verdict.h"

namespace mantissa {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr int kMostRanks = 8;

// What ranks tell the test. Anonymous shared memory, so that all forks see it.
struct Board {
  std::array<std::atomic<pid_t>, kMostRanks> pids{};
  std::atomic<int> ready = 0;
  std::atomic<pid_t> helper = 0;
};

class SharedBoard {
 public:
  SharedBoard() {
    void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    board_ = new (memory) Board;
  }
  ~SharedBoard() { ::munmap(board_, sizeof(Board)); }
  Board* operator->() const { return board_; }
  void sign(const LocalRank& local) const {
    board_->pids[static_cast<size_t>(local.rank)] = ::getpid();
    ++board_->ready;
  }
  void wait_for(int ranks) const {
    while (board_->ready < ranks) std::this_thread::yield();
  }
  bool nothing_left() const {
    return std::all_of(board_->pids.begin(), board_->pids.end(),
                       [](const std::atomic<pid_t>& pid) { return pid == 0 || ::kill(pid, 0) != 0; });
  }

 private:
  Board* board_;
};

// As in /proc: 'Z' is a zombie; '-' where there is no such process.
char process_state(pid_t pid) {
  std::FILE* stat = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r");
  if (!stat) return '-';
  char state = '-';
  if (std::fscanf(stat, "%*d (%*[^)]) %c", &state) != 1) state = '-';
  std::fclose(stat);
  return state;
}

[[noreturn]] void block_forever() {
  while (true) ::pause();
}

// Runs `action` in a process of its own and catches what it writes. The process reaps what it inherits.
struct Ended {
  int status = 0;
  std::string out, err;
};

std::string read_to_end(int fd) {
  std::string text;
  std::array<char, 65536> buffer;
  for (ssize_t count; (count = ::read(fd, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(count));
  return text;
}

struct Watched {
  pid_t pid;
  FileDescriptor out, err;
  Ended wait() {
    Ended ended;
    std::thread errors([&] { ended.err = read_to_end(err.get()); });
    ended.out = read_to_end(out.get());
    errors.join();
    ::waitpid(pid, &ended.status, 0);
    return ended;
  }
};

template <typename Action>
Watched in_process(Action action) {
  int out[2], err[2];
  EXPECT_EQ(::pipe(out), 0);
  EXPECT_EQ(::pipe(err), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::signal(SIGHUP, SIG_DFL);  // whatever starts the tests ignores
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    for (const int fd : {out[0], out[1], err[0], err[1]}) ::close(fd);
    ::_exit(action());
  }
  ::close(out[1]);
  ::close(err[1]);
  return {pid, FileDescriptor(out[0]), FileDescriptor(err[0])};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Launcher, AllRanksSucceed_IsDoneWithoutMessage) {
  SharedBoard board;
  const JobOutcome outcome = launch(3, [&](const LocalRank& local) {
    board.sign(local);
    return RankOutcome{};
  });
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.message, "");
  EXPECT_EQ(board->ready, 3);
  EXPECT_TRUE(board.nothing_left());
}

TEST(Launcher, SameWarningOnAllRanks_IsSaidOnce) {
  const Ended ended = in_process([] {
                        return launch(4,
                                      [](const LocalRank& local) {
                                        log::warning("all ranks find this");
                                        log::warning("only rank " + std::to_string(local.rank) + " finds this");
                                        return RankOutcome{};
                                      })
                            .exit_code;
                      }).wait();
  EXPECT_EQ(ended.status, 0);
  std::map<std::string, int> said;
  for (const std::string& line : lines_of(ended.err)) ++said[line.substr(line.find("mantissa:"))];
  EXPECT_EQ(said.size(), 5u) << ended.err;
  for (const auto& [line, times] : said) EXPECT_EQ(times, 1) << line;
}

TEST(Launcher, OneRank_IsForkedToo) {
  SharedBoard board;
  const JobOutcome outcome = launch(1, [&](const LocalRank& local) {
    board.sign(local);
    return RankOutcome{};
  });
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(board->pids[0], ::getpid());
}

TEST(Launcher, NoRanks_IsRefused) {
  EXPECT_THROW(launch(0, [](const LocalRank&) { return RankOutcome{}; }), UsageError);
}

TEST(Launcher, RankZero_HoldsTheListeningSocketAndOthersOnlyThePort) {
  SharedBoard board;
  const JobOutcome outcome = launch(2, [&](const LocalRank& local) {
    if (local.port <= 0 || local.world_size != 2) throw Error("no port");
    int listens = 0;
    socklen_t size = sizeof listens;
    if (local.rank == 0 && ::getsockopt(local.listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0)
      throw Error("no socket");
    if (local.rank == 0 && listens != 1) throw Error("does not listen");
    if (local.rank == 1 && local.listen_fd != -1) throw Error("has a socket");
    return RankOutcome{};
  });
  EXPECT_EQ(outcome.message, "");
}

TEST(Launcher, RankThrows_GivesItsExitCodeAndNamesIt) {
  const JobOutcome outcome = launch(2, [](const LocalRank& local) {
    if (local.rank == 1) throw CheckpointError("weights.safetensors: too short");
    return RankOutcome{};
  });
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_EQ(outcome.message, "rank 1 failed: weights.safetensors: too short");
}

TEST(Launcher, RankThrowsForeignException_IsCaught) {
  EXPECT_EQ(launch(1, [](const LocalRank&) -> RankOutcome { throw 7; }).message, "an exception of unknown type");
  const JobOutcome outcome = launch(1, [](const LocalRank&) -> RankOutcome { throw std::out_of_range("index 3"); });
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.message, "index 3");
}

TEST(Launcher, EveryRankFailsAlike_NamesNone) {
  const JobOutcome outcome =
      launch(3, [](const LocalRank&) -> RankOutcome { throw PluginRefused("not-found", "no plugin x"); });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.message, "not-found: no plugin x");
}

TEST(Launcher, PeerHeardFirst_NamesTheOrigin) {
  SharedBoard board;
  const JobOutcome outcome = launch(2, [&](const LocalRank& local) -> RankOutcome {
    board.sign(local);
    if (local.rank == 0) throw PeerFailed(1, ExitCode::plugin, "create failed");
    while (process_state(board->pids[0]) != 'Z') std::this_thread::yield();  // not reaped before the job's end
    throw PluginRefused("create", "out of memory");
  });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.message, "rank 1 failed: create: out of memory");
}

TEST(Launcher, OnlyHearersReport_PassesTheirMessageOn) {
  const JobOutcome outcome = launch(
      2,
      [](const LocalRank& local) -> RankOutcome {
        if (local.rank == 0) throw PeerFailed(1, ExitCode::failed, "did not answer within 20 s");
        block_forever();
      },
      50ms);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.message, "rank 1 failed: did not answer within 20 s");
}

TEST(Launcher, PeerLostAndARankHung_NamesTheOneThatHung) {
  const JobOutcome outcome = launch(
      3,
      [](const LocalRank& local) -> RankOutcome {
        if (local.rank != 1) throw PeerLost("rank 0, rank 1 gave no sign of life", "a gather timed out");
        block_forever();
      },
      50ms);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.message, "rank 1 hung and had to be killed: a gather timed out");
}

TEST(Launcher, PeerLostAndARankLeft_NamesTheOneThatLeft) {
  const JobOutcome outcome = launch(3, [](const LocalRank& local) -> RankOutcome {
    if (local.rank == 1) return {};
    throw PeerLost("rank 1 gave no sign of life", "the connection broke");
  });
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.message, "rank 1 ended before the others were done: the connection broke");
}

TEST(Launcher, ExceptionOnAThreadOfARank_IsItsFailure) {
  const JobOutcome outcome = launch(2, [](const LocalRank& local) -> RankOutcome {
    if (local.rank == 1) std::thread([] { throw PluginRefused("create-failed", "no licence"); }).join();
    return {};
  });
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.message, AllOf(HasSubstr("rank 1 failed: "), HasSubstr("thread"), HasSubstr("no licence")));
}

TEST(Launcher, RankExitsSilently_SaysSo) {
  const JobOutcome outcome = launch(2, [](const LocalRank& local) {
    if (local.rank == 1) std::exit(7);
    return RankOutcome{};
  });
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(
      outcome.message,
      "rank 1 left early with exit code 7: something called exit() in the middle of the run (see its lines above)");
}

TEST(Launcher, RankExitsSilentlyWithZero_HasFailed) {
  const JobOutcome outcome = launch(1, [](const LocalRank&) -> RankOutcome { std::_Exit(0); });
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.message, HasSubstr("rank 0 left early with exit code 0"));
}

TEST(Launcher, RankIsKilledWhileOthersBlock_NamesItAndLeavesNothing) {
  SharedBoard board;
  const auto begin = std::chrono::steady_clock::now();
  const JobOutcome outcome = launch(
      4,
      [&](const LocalRank& local) -> RankOutcome {
        board.sign(local);
        ::signal(SIGTERM, SIG_IGN);  // only SIGKILL ends these
        board.wait_for(4);
        if (local.rank == 1) ::raise(SIGKILL);
        block_forever();
      },
      100ms);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.message, "rank 1 was killed by signal 9 (Killed)");
  EXPECT_TRUE(board.nothing_left());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
}

TEST(Launcher, PeerOfKilledRankFailsToo_NamesTheKilledOne) {
  for (int round = 0; round < 10; ++round) {
    SharedBoard board;
    const JobOutcome outcome = launch(3, [&](const LocalRank& local) -> RankOutcome {
      board.sign(local);
      board.wait_for(3);
      if (local.rank == 2) ::raise(SIGKILL);
      throw CommError("connection closed by peer");
    });
    EXPECT_EQ(outcome.message, "rank 2 was killed by signal 9 (Killed)");
  }
}

TEST(Launcher, GrandchildOfRank_IsEndedToo) {
  SharedBoard board;
  launch(1, [&](const LocalRank&) {
    const pid_t pid = ::fork();
    if (pid == 0) block_forever();
    board->helper = pid;
    return RankOutcome{};
  });
  // Killed for sure; whoever inherits it may let it be a zombie for a while.
  char state = process_state(board->helper);
  while (state != 'Z' && state != 'X' && state != '-') state = process_state(board->helper);
}

TEST(Launcher, Killed_TakesItsRanksAlong) {
  SharedBoard board;
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  Watched launcher = in_process([&] {
    return launch(2,
                  [&](const LocalRank& local) -> RankOutcome {
                    board.sign(local);
                    ::signal(SIGTERM, SIG_IGN);
                    block_forever();
                  })
        .exit_code;
  });
  board.wait_for(2);
  ::kill(launcher.pid, SIGKILL);
  launcher.wait();
  for (int rank = 0; rank < 2; ++rank) {
    int status = 0;
    ASSERT_EQ(::waitpid(board->pids[static_cast<size_t>(rank)], &status, 0), board->pids[static_cast<size_t>(rank)]);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(Launcher, OutputOfRanks_IsPrefixedAndKeepsItsStream) {
  const Ended ended = in_process([] {
                        return launch(2,
                                      [](const LocalRank& local) {
                                        // On stderr: only lines up to PIPE_BUF never mix with rank 0's own.
                                        if (local.rank == 0) std::cerr << "from zero\n";
                                        if (local.rank == 1) {
                                          std::cout << "one\n" << "half";
                                          std::cerr << "warn\n";
                                          std::cout << " a line\n\n" << std::string(100'000, 'x') << "\nno end";
                                        }
                                        return RankOutcome{};
                                      })
                            .exit_code;
                      }).wait();
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(lines_of(ended.err), ::testing::UnorderedElementsAre("from zero", "[rank 1] warn"));
  std::vector<std::string> expected = {"[rank 1] one", "[rank 1] half a line", "[rank 1] ",
                                       "[rank 1] " + std::string(100'000, 'x'), "[rank 1] no end"};
  EXPECT_EQ(lines_of(ended.out), expected);
}

TEST(Launcher, ManyLinesOfFourRanks_AreNotMangled) {
  constexpr int kLines = 20'000;
  const Ended ended = in_process([] {
                        return launch(4,
                                      [](const LocalRank& local) {
                                        const std::string body(static_cast<size_t>(20 + local.rank * 37),
                                                               static_cast<char>('a' + local.rank));
                                        for (int line = 0; line < kLines; ++line)
                                          std::cout << line << ' ' << body << '\n';
                                        return RankOutcome{};
                                      })
                            .exit_code;
                      }).wait();
  std::map<int, int> next;
  for (const std::string& line : lines_of(ended.out)) {
    const int rank = line.starts_with("[rank ") ? line[6] - '0' : 0;
    const std::string body(static_cast<size_t>(20 + rank * 37), static_cast<char>('a' + rank));
    const std::string prefix = rank > 0 ? "[rank " + std::to_string(rank) + "] " : "";
    ASSERT_EQ(line, prefix + std::to_string(next[rank]++) + " " + body);
  }
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(next[rank], kLines);
}

volatile sig_atomic_t g_stop = 0;
void request_stop(int signal) { g_stop = signal; }

// A rank that stops in order on a signal, as a training loop does after its step.
RankOutcome stop_in_order(const SharedBoard& board, const LocalRank& local) {
  ::signal(SIGTERM, request_stop);
  ::signal(SIGINT, request_stop);
  ::signal(SIGHUP, request_stop);
  board.sign(local);
  while (g_stop == 0) std::this_thread::yield();
  return {128 + g_stop, true, "stopped by a signal after step 3"};
}

TEST(Launcher, SigtermSigintAndSighup_ArePassedOnAndGiveTheRanksCode) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    SharedBoard board;
    Watched launcher = in_process([&] {
      ::signal(SIGINT, SIG_DFL);
      const JobOutcome outcome = launch(3, [&](const LocalRank& local) { return stop_in_order(board, local); });
      std::cout << outcome.message << std::flush;
      return outcome.exit_code;
    });
    board.wait_for(3);
    ::kill(launcher.pid, signal);
    const Ended ended = launcher.wait();
    EXPECT_EQ(WEXITSTATUS(ended.status), 128 + signal);
    EXPECT_EQ(ended.out, "stopped by a signal after step 3");
    EXPECT_TRUE(board.nothing_left());
  }
}

TEST(Launcher, SlowOrderlyStop_IsNotCutShortByAPeerThatStoppedSooner) {
  SharedBoard board;
  Watched launcher = in_process([&] {
    return launch(
               2,
               [&](const LocalRank& local) {
                 const RankOutcome outcome = stop_in_order(board, local);
                 if (local.rank == 0) std::this_thread::sleep_for(200ms), std::cout << "saved\n";
                 return outcome;
               },
               1ms)
        .exit_code;
  });
  board.wait_for(2);
  ::kill(launcher.pid, SIGTERM);
  const Ended ended = launcher.wait();
  EXPECT_EQ(WEXITSTATUS(ended.status), 143);
  EXPECT_EQ(ended.out, "saved\n");
}

TEST(Launcher, SigtermBeforeRanksHandleIt_Is143) {
  SharedBoard board;
  Watched launcher = in_process([&] {
    const JobOutcome outcome = launch(2, [&](const LocalRank& local) -> RankOutcome {
      board.sign(local);
      block_forever();
    });
    std::cout << outcome.message << std::flush;
    return outcome.exit_code;
  });
  board.wait_for(2);
  ::kill(launcher.pid, SIGTERM);
  const Ended ended = launcher.wait();
  EXPECT_EQ(WEXITSTATUS(ended.status), 143);
  EXPECT_EQ(ended.out, "stopped by signal 15 (Terminated)");
}

TEST(Launcher, SecondSigintOrSigterm_Kills) {
  for (const int signal : {SIGINT, SIGTERM}) {
    SharedBoard board;
    Watched launcher = in_process([&] {
      ::signal(SIGINT, SIG_DFL);
      return launch(2,
                    [&](const LocalRank& local) -> RankOutcome {
                      ::signal(SIGINT, request_stop);
                      ::signal(SIGTERM, request_stop);
                      board.sign(local);
                      while (g_stop == 0) std::this_thread::yield();
                      ++board->ready;
                      block_forever();  // a step that does not end
                    })
          .exit_code;
    });
    board.wait_for(2);
    ::kill(launcher.pid, signal);
    board.wait_for(4);
    while (process_state(launcher.pid) != 'Z') {
      std::this_thread::sleep_for(20ms);  // what comes within 100 ms still belongs to the first
      ::kill(launcher.pid, signal);
    }
    EXPECT_EQ(WEXITSTATUS(launcher.wait().status), 128 + signal);
    EXPECT_TRUE(board.nothing_left());
  }
}

TEST(Launcher, SecondSignalAtOnce_LeavesTheOrderlyStopAlone) {
  SharedBoard board;
  Watched launcher = in_process([&] {
    ::signal(SIGINT, SIG_DFL);
    const JobOutcome outcome = launch(2, [&](const LocalRank& local) { return stop_in_order(board, local); });
    std::cout << outcome.message << std::flush;
    return outcome.exit_code;
  });
  board.wait_for(2);
  ::kill(launcher.pid, SIGSTOP);  // so that it finds both together
  ::kill(launcher.pid, SIGTERM);
  ::kill(launcher.pid, SIGINT);
  ::kill(launcher.pid, SIGHUP);
  ::kill(launcher.pid, SIGCONT);
  EXPECT_EQ(launcher.wait().out, "stopped by a signal after step 3");
  EXPECT_TRUE(board.nothing_left());
}

TEST(Launcher, ReaderOfItsOutputGone_DoesNotEndIt) {
  SharedBoard board;
  Watched launcher = in_process([&] {
    ::signal(SIGPIPE, SIG_DFL);
    return launch(2,
                  [&](const LocalRank& local) -> RankOutcome {
                    board.sign(local);
                    board.wait_for(3);
                    if (local.rank == 1) std::cout << "nobody reads this" << std::endl;
                    return {7, true, "as asked"};
                  })
        .exit_code;
  });
  launcher.out.reset();
  ++board->ready;
  int status = 0;
  ::waitpid(launcher.pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

TEST(Launcher, ReaderThatDoesNotRead_DoesNotKeepItFromSignals) {
  SharedBoard board;
  Watched launcher = in_process([&] {
    ::signal(SIGINT, SIG_DFL);
    return launch(2,
                  [&](const LocalRank& local) -> RankOutcome {
                    board.sign(local);
                    if (local.rank == 0) block_forever();
                    while (true) std::cout << std::string(1000, 'y') << '\n';
                  })
        .exit_code;
  });
  board.wait_for(2);
  ::kill(launcher.pid, SIGINT);
  int status = 0;
  // Nobody reads its stdout: the launcher ends all the same, after a second signal at the latest.
  while (::waitpid(launcher.pid, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(20ms);
    ::kill(launcher.pid, SIGINT);
  }
  EXPECT_TRUE(WIFEXITED(status) ? WEXITSTATUS(status) == 130 : WTERMSIG(status) == SIGINT);
  EXPECT_TRUE(board.nothing_left());
}

TEST(Launcher, StartFailsAtALaterRank_EndsTheFirstOnes) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "this test takes all descriptors, and UBSan needs two to look at an exception";
#endif
  SharedBoard board;
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit low = old;
  const int next = ::dup(0);
  ::close(next);
  low.rlim_cur = static_cast<rlim_t>(next) + 9;  // enough for the launcher and a rank or two, not for eight
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::string message;
  try {
    launch(8, [&](const LocalRank& local) -> RankOutcome {
      board.sign(local);
      block_forever();
    });
  } catch (const CommError& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_THAT(message, AllOf(HasSubstr("of 8 cannot be started"), HasSubstr("Too many open files")));
  EXPECT_THAT(message, testing::Not(HasSubstr("rank 0 of")));
  EXPECT_TRUE(board.nothing_left());
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child was left behind";
}

TEST(Launcher, StdinOfRanks_IsEmpty) {
  EXPECT_EQ(launch(1,
                   [](const LocalRank&) {
                     char byte;
                     return RankOutcome{static_cast<int>(::read(STDIN_FILENO, &byte, 1)), true, "read something"};
                   })
                .exit_code,
            0);
}

TEST(Launcher, CallersSignals_AreAsBefore) {
  sigset_t before, after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  launch(2, [](const LocalRank&) { return RankOutcome{}; });
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD})
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal));
}

TEST(Launcher, VeryLongMessage_IsCutAndDoesNotBlock) {
  const JobOutcome outcome =
      launch(1, [](const LocalRank&) { return RankOutcome{1, true, std::string(1 << 20, 'm')}; });
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_GE(outcome.message.size(), 1000u);
}

// --- verdict: the order of things, without processes ---------------------------------------------------------------

EndedRank end_of(int rank, EndKind kind, std::chrono::milliseconds when, int signal = 0) {
  return {rank, kind, signal, 1, "m" + std::to_string(rank), std::chrono::steady_clock::time_point(when)};
}

TEST(Verdict, KillSeenShortlyAfterSecondaryError_NamesTheKill) {
  EXPECT_EQ(verdict({end_of(0, EndKind::failed, 0ms), end_of(1, EndKind::killed, 400ms, SIGKILL)}).message,
            "rank 1 was killed by signal 9 (Killed)");
}

TEST(Verdict, KillLongAfterAFailure_NamesTheFailure) {
  EXPECT_EQ(verdict({end_of(0, EndKind::failed, 0ms), end_of(1, EndKind::killed, 900ms, SIGSEGV)}).message,
            "rank 0 failed: m0");
}

TEST(Verdict, PeerAbortsAfterAFailure_NamesTheFailure) {
  EXPECT_EQ(verdict({end_of(0, EndKind::failed, 0ms), end_of(1, EndKind::killed, 1ms, SIGABRT)}).message,
            "rank 0 failed: m0");
}

TEST(Verdict, FailureAfterAStop_WinsOverTheStop) {
  EXPECT_EQ(verdict({end_of(0, EndKind::stopped, 0ms), end_of(1, EndKind::failed, 1ms)}).message, "rank 1 failed: m1");
}

}  // namespace
}  // namespace mantissa
