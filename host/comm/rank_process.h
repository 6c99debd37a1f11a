// One forked rank as the launcher sees it: how it is started, and what is read from it once it has ended.
#pragma once
#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "base/file_descriptor.h"
#include "comm/launcher.h"

namespace mantissa {

using RankBody = std::function<RankOutcome(const LocalRank&)>;

/// How a process ended, as waitid tells it.
struct ExitStatus {
  bool by_signal = false;
  int code = 0;  ///< the signal, or the exit code
};

/// What a new rank needs to know of its job.
struct RankStart {
  LocalRank local;
  pid_t group = 0;                        ///< process group to join; 0: begin it
  sigset_t signal_mask;                   ///< the launcher's, before it blocked anything
  std::function<void()> forget_launcher;  ///< called in the child: closes what is the launcher's alone
};

/// A child, and the ends of the pipes that come from it. Closing them is all the destructor does.
class RankProcess {
 public:
  /// Forks. The child runs `body` and never returns from here. Throws std::system_error if it cannot be started.
  RankProcess(const RankStart& start, const RankBody& body);

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  /// The read ends of its stdout and stderr; not open for rank 0, which keeps the launcher's.
  FileDescriptor take_out() { return std::move(out_); }
  FileDescriptor take_err() { return std::move(err_); }

  /// Empty while it runs. The child stays a zombie until `reap`, so that its pid, and the process group, stay its own.
  std::optional<ExitStatus> poll_exit() const;
  /// After SIGSTOP: returns once all its threads stand still, or it has ended.
  void wait_until_stopped() const;
  /// Waits for its end and frees its pid.
  void reap() const;
  /// What its body ended with; empty if it ended before it could say. Call after its end.
  std::optional<RankOutcome> read_outcome() const;

 private:
  int rank_;
  pid_t pid_ = -1;
  FileDescriptor outcome_, out_, err_;
};

}  // namespace mantissa
