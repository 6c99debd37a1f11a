#include "report/bar_line.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/terminal.h"

namespace mantissa {
namespace {

// Without wrapping: a window may become narrower between the question for its width and the write.
constexpr std::string_view kNoWrap = "\x1b[?7l", kWrap = "\x1b[?7h";
constexpr int kUsualColumns = 80;

volatile std::sig_atomic_t drawn_on = -1;  // the descriptor of the bar that is shown; a signal handler reaches no more

// Ctrl-Z: the bar goes before the shell says that the job is stopped. Drawn again by the first update after SIGCONT.
void on_stop(int) {
  const int error = errno;
  if (drawn_on >= 0 && ::write(drawn_on, kEraseLine.data(), kEraseLine.size()) >= 0) drawn_on = -1;
  struct sigaction stop{}, ours{};
  stop.sa_handler = SIG_DFL;
  ::sigaction(SIGTSTP, &stop, &ours);
  ::raise(SIGTSTP);  // SA_NODEFER: stops here
  ::sigaction(SIGTSTP, &ours, nullptr);
  errno = error;
}

void set_stop_handler(void (*from)(int), void (*to)(int)) {
  struct sigaction action{};
  if (::sigaction(SIGTSTP, nullptr, &action) != 0 || action.sa_handler != from) return;  // ignored, or another's
  action.sa_handler = to;
  action.sa_flags = SA_RESTART | SA_NODEFER;
  ::sigaction(SIGTSTP, &action, nullptr);
}

bool takes_more(int fd) {
  pollfd ready{fd, POLLOUT, 0};
  return ::poll(&ready, 1, 0) == 1;
}

}  // namespace

BarLine::BarLine(int fd, pid_t group) : fd_(fd), group_(group) { set_stop_handler(SIG_DFL, on_stop); }

BarLine::~BarLine() {
  close();
  set_stop_handler(on_stop, SIG_DFL);
}

int BarLine::columns() const {
  winsize size{};
  if (::ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int named = columns == nullptr ? 0 : std::atoi(columns);
  return named > 0 ? named : kUsualColumns;
}

bool BarLine::in_foreground() const { return ::tcgetpgrp(fd_) == group_; }

// Of a bar in the background there is nothing left, and the line may be the shell's.
void BarLine::erase_before_lines(std::string& out) const {
  if (drawn_on >= 0 || in_foreground()) out += kEraseLine;
}

void BarLine::draw(std::string_view bar) {
  if (!takes_more(fd_)) return;
  std::string out;
  if (!pending_.empty() || bar.empty()) erase_before_lines(out);
  out += pending_;
  if (!bar.empty()) out.append("\r").append(kNoWrap).append(bar).append(kWrap).append("\x1b[J\r");
  pending_.clear();
  drawn_on = bar.empty() ? -1 : fd_;
  write_all(out);
}

void BarLine::close() {
  if (pending_.empty() && drawn_on < 0) return;
  std::string out;
  erase_before_lines(out);
  out += pending_;
  pending_.clear();
  drawn_on = -1;
  write_all(out);
}

// What cannot be written (a terminal that is gone) is dropped: it must not end the run.
void BarLine::write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {  // another program has made the terminal nonblocking
      pollfd ready{fd_, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace mantissa
