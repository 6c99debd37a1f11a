#include "comm/launcher_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace mantissa {
namespace {

bool is_ignored(int signal) {
  struct sigaction action{};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

LauncherSignals::LauncherSignals() {
  // Where the children of this process are ignored, the kernel forgets how they ended.
  struct sigaction by_default{};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &by_default, &previous_sigchld_);
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &previous_sigpipe_);
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) {
    if (!is_ignored(signal)) sigaddset(&watched, signal);  // nohup and shells' `&` mean it
  }
  ::pthread_sigmask(SIG_BLOCK, &watched, &previous_mask_);
  fd_ = FileDescriptor(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
}

LauncherSignals::~LauncherSignals() {
  ::pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
  ::sigaction(SIGCHLD, &previous_sigchld_, nullptr);
  ::sigaction(SIGPIPE, &previous_sigpipe_, nullptr);
}

int LauncherSignals::next() {
  signalfd_siginfo info;
  return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

void LauncherSignals::stop_here() const {
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  ::raise(SIGTSTP);
  ::pthread_sigmask(SIG_UNBLOCK, &stop, &before);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace mantissa
