#include "train/stop_request.h"

#include <csignal>

#include "comm/packet.h"

namespace mantissa {
namespace {

volatile std::sig_atomic_t requested = 0;  // a signal handler can reach nothing else

void on_signal(int signal) {
  requested = requested | (signal == SIGINT ? kStopInterrupted : kStopTerminated);
  std::signal(signal, SIG_DFL);
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a reader of the progress lines that goes does not end the run
}

uint32_t requested_stops() { return static_cast<uint32_t>(requested); }

}  // namespace mantissa
