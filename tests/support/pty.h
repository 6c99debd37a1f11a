// Runs code or a program in a terminal of its own, as if a person sat there: what is typed, what is to be seen.
#pragma once
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>

#include "support/screen.h"

namespace mantissa::test {

/// Whether this machine has pseudo-terminals: a bare container may lack /dev/pts.
inline bool has_terminals() {
  int master = -1, terminal = -1;
  if (::openpty(&master, &terminal, nullptr, nullptr, nullptr) != 0) return false;
  ::close(master);
  ::close(terminal);
  return true;
}

#define SKIP_WITHOUT_TERMINALS() \
  if (!test::has_terminals()) GTEST_SKIP() << "there are no pseudo-terminals here: /dev/pts is not mounted"

/// A child that leads the session of a new pseudo-terminal; killed when this goes.
class TerminalSession {
 public:
  TerminalSession(unsigned short columns, const std::function<int()>& child) : screen_(columns) {
    winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ < 0) throw std::runtime_error("no pseudo-terminal");
    if (pid_ == 0) ::_exit(child());
  }
  ~TerminalSession() {
    if (pid_ > 0) {
      ::kill(-pid_, SIGKILL);
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(terminal_);
  }
  TerminalSession(const TerminalSession&) = delete;

  pid_t pid() const { return pid_; }
  const Screen& screen() const { return screen_; }
  const std::string& bytes() const { return bytes_; }

  void type(const std::string& keys) { EXPECT_EQ(::write(terminal_, keys.data(), keys.size()), ssize_t(keys.size())); }

  void resize(unsigned short columns) {
    winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::ioctl(terminal_, TIOCSWINSZ, &size), 0);
    screen_.resize(columns);
  }

  /// Reads until `text` comes, not counting what was there before the call, or `limit` has passed.
  bool wait_for(const std::string& text, std::chrono::seconds limit = std::chrono::seconds(60)) {
    const size_t from = bytes_.size();
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (bytes_.find(text, from) == std::string::npos) {
      if (!read_some(deadline)) return false;
    }
    return true;
  }

  /// Reads to the end; the exit code, 128 + signal if it was killed, -1 if it runs on at the limit.
  int wait(std::chrono::seconds limit = std::chrono::seconds(60)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (read_some(deadline)) {
    }
    if (std::chrono::steady_clock::now() >= deadline) return -1;
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  bool read_some(std::chrono::steady_clock::time_point deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd ready{terminal_, POLLIN, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0) return false;
    char buffer[4096];
    const ssize_t size = ::read(terminal_, buffer, sizeof buffer);
    if (size <= 0) return size < 0 && errno == EINTR;  // EIO: nobody has the terminal any more
    bytes_.append(buffer, static_cast<size_t>(size));
    screen_.feed({buffer, static_cast<size_t>(size)});
    return true;
  }

  int terminal_ = -1;
  pid_t pid_ = -1;
  Screen screen_;
  std::string bytes_;
};

}  // namespace mantissa::test
