// The signals that a launcher hears while its ranks run.
#pragma once
#include <signal.h>

#include "base/file_descriptor.h"

namespace mantissa {

/// SIGCHLD, SIGINT, SIGTERM, SIGHUP and SIGTSTP as a descriptor to poll, for as long as this lives; those that are
/// ignored stay so. A reader of the output that goes (SIGPIPE) is no reason to end a job.
class LauncherSignals {
 public:
  LauncherSignals();
  ~LauncherSignals();
  LauncherSignals(const LauncherSignals&) = delete;
  LauncherSignals& operator=(const LauncherSignals&) = delete;

  int fd() const { return fd_.get(); }
  /// That a child gets back.
  const sigset_t& previous_mask() const { return previous_mask_; }
  void close_in_child() { fd_.reset(); }
  /// The next signal that came, or 0.
  int next();
  /// Stops this process as SIGTSTP does where nobody watches for it; returns when it is continued.
  void stop_here() const;

 private:
  struct sigaction previous_sigchld_{}, previous_sigpipe_{};
  sigset_t previous_mask_{};
  FileDescriptor fd_;
};

}  // namespace mantissa
