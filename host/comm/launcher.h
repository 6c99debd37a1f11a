// Starts the ranks of one machine as direct children of this process and watches them. Knows no torch.
#pragma once
#include <chrono>
#include <exception>
#include <functional>
#include <string>

namespace mantissa {

/// What a rank that was started by `launch` is told.
struct LocalRank {
  int rank = 0;
  int world_size = 1;
  int listen_fd = -1;  ///< rank 0: a bound, listening TCP socket on 127.0.0.1 for the store; -1 on other ranks
  int port = 0;        ///< of that socket
};

/// What a rank ends with. `origin`: the fault arose on this rank; false if it only heard of a peer's.
struct RankOutcome {
  int exit_code = 0;
  bool origin = true;
  std::string message;  ///< empty if exit_code is 0
  std::string observed =
      {};  ///< where peers were lost without a word: what was seen of it, without a guess at the rank
};

/// The outcome that an exception comes to: see Failure::own.
RankOutcome outcome_of(const std::exception_ptr& exception);

/// How a whole job ended.
struct JobOutcome {
  int exit_code = 0;
  std::string message;    ///< one line that names the first rank that failed and why; empty if all is well
  bool in_order = false;  ///< all ranks ended by themselves, done or on a signal
};

/// Runs `body` in `world_size` forked children and waits for all of them.
///
/// Must be called before this process has a second thread. Rank 0 keeps stdout and stderr; the lines of the others are
/// passed on with `[rank N] ` before them. When one fails, the others get `grace` to end by themselves, then SIGTERM,
/// then SIGKILL. SIGINT, SIGTERM and SIGHUP to the launcher are passed on; SIGTSTP (Ctrl-Z) stops the ranks and it, and
/// SIGCONT continues them. No child outlives it, even if it is killed. The outcome is that of the first rank that
/// failed by itself: an origin before one that only heard of it; a rank that died by a signal counts as failed with
/// exit code 1 and is named with the signal. A message that all ranks end with alike is given without a rank. Ranks
/// that stop in order on SIGINT, SIGTERM or SIGHUP (codes 130, 143, 129) have all the time they need; a second SIGINT
/// or SIGTERM, 100 ms or more after the first signal, kills them. Throws UsageError without ranks, CommError if a rank
/// cannot be started.
JobOutcome launch(int world_size, const std::function<RankOutcome(const LocalRank&)>& body,
                  std::chrono::milliseconds grace = std::chrono::seconds(5));

}  // namespace mantissa
