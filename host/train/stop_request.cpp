#include "train/stop_request.h"

#include <time.h>

#include <atomic>
#include <csignal>

#include "comm/packet.h"

namespace mantissa {
namespace {

// What comes sooner belongs to the first signal: timeout(1), say, sends it to the process and then to its group.
constexpr int64_t kSameRequestMs = 100;

// A signal handler can reach nothing else.
std::atomic<uint32_t> requested = 0;
std::atomic<bool> second_ends = true;
std::atomic<int64_t> requested_at_ms = 0;
static_assert(decltype(requested_at_ms)::is_always_lock_free);

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

uint32_t request_of(int signal) {
  return signal == SIGINT ? kStopInterrupted : signal == SIGTERM ? kStopTerminated : kStopHungUp;
}

void on_signal(int signal) {
  const int64_t now = now_ms();
  if (requested == 0) {
    requested = request_of(signal);
    requested_at_ms = now;
  } else if (second_ends && signal != SIGHUP && now - requested_at_ms >= kSameRequestMs) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // as soon as this handler returns
  }
}

bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void catch_stop_signals(SecondSignal second) {
  second_ends = second == SecondSignal::ends;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!is_ignored(signal)) sigaction(signal, &action, nullptr);  // nohup and shells' `&` mean it
  }
}

void outlive_output() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

uint32_t requested_stops() { return requested; }

const char* name_of_stop(uint32_t requests) {
  return requests & kStopInterrupted ? "SIGINT" : requests & kStopTerminated ? "SIGTERM" : "SIGHUP";
}

}  // namespace mantissa
