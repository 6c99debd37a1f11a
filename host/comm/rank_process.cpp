#include "comm/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "comm/terminate.h"

namespace mantissa {
namespace {

// Below the size of a pipe, so that a rank can always leave its outcome and end, whether or not somebody reads.
constexpr size_t kLongestMessage = 16384;

struct OutcomeHeader {
  int32_t exit_code = 0;
  uint32_t origin = 1;
  uint32_t message_size = 0;
  uint32_t observed_size = 0;
};

[[noreturn]] void throw_errno(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

struct Pipe {
  FileDescriptor read_end, write_end;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("pipe");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// Only the launcher reads from it; the flag is not shared with the end that the child writes to.
void set_nonblocking(const FileDescriptor& fd) { ::fcntl(fd.get(), F_SETFL, O_NONBLOCK); }

void write_all(int fd, const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(fd, from, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;  // nobody reads: the exit code is all that is left to say it
    from += written;
    size -= static_cast<size_t>(written);
  }
}

bool read_all(int fd, void* data, size_t size) {
  char* to = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t count = ::read(fd, to, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    to += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

void write_outcome(int fd, const RankOutcome& outcome) {
  const std::string_view message = std::string_view(outcome.message).substr(0, kLongestMessage);
  const std::string_view observed = std::string_view(outcome.observed).substr(0, kLongestMessage);
  const OutcomeHeader header{outcome.exit_code, outcome.origin ? 1u : 0u, static_cast<uint32_t>(message.size()),
                             static_cast<uint32_t>(observed.size())};
  write_all(fd, &header, sizeof header);
  write_all(fd, message.data(), message.size());
  write_all(fd, observed.data(), observed.size());
}

RankOutcome run_caught(const RankBody& body, const LocalRank& local) {
  try {
    return body(local);
  } catch (...) {
    return outcome_of(std::current_exception());
  }
}

// Rank 0 writes to the launcher's terminal, though its process group is not the one in front: with `stty tostop` that
// would stop it.
void write_from_the_background() { ::signal(SIGTTOU, SIG_IGN); }

// The launcher may die between fork and prctl; then nobody would send the signal.
void die_with(pid_t launcher) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);
}

void redirect(const FileDescriptor& from, int to) {
  if (from.is_open()) ::dup2(from.get(), to);
}

void read_nothing() {
  const FileDescriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  redirect(null, STDIN_FILENO);
}

// exit() in the middle of a run: the exit handlers of torch would wait for threads that this rank cannot end.
void end_at_once_by_exit() {
  ::on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        ::_exit(status);
      },
      nullptr);
}

[[noreturn]] void run_child(const RankStart& start, const RankBody& body, pid_t launcher, int outcome_fd) {
  ::setpgid(0, start.group);
  die_with(launcher);
  read_nothing();
  write_from_the_background();
  end_at_once_by_exit();
  end_by_terminate([outcome_fd](const Failure& failure) {
    write_outcome(outcome_fd, {static_cast<int>(failure.exit_code), failure.own, failure.text});
  });
  start.forget_launcher();
  // A pipe would be buffered by blocks, which end in the middle of a line. A buffer of our own, as glibc goes on with
  // blocks for the rest of one that the launcher has used.
  static char line_buffer[BUFSIZ];
  std::setvbuf(stdout, line_buffer, _IOLBF, sizeof line_buffer);
  ::pthread_sigmask(SIG_SETMASK, &start.signal_mask, nullptr);
  const RankOutcome outcome = run_caught(body, start.local);
  std::cout.flush();
  std::fflush(nullptr);
  write_outcome(outcome_fd, outcome);
  ::_exit(outcome.exit_code);  // no exit handlers: those of torch wait for threads that a failed rank cannot end
}

}  // namespace

RankOutcome outcome_of(const std::exception_ptr& exception) {
  const Failure failure = describe(exception);
  RankOutcome outcome{static_cast<int>(failure.exit_code), failure.own, failure.text};
  try {
    std::rethrow_exception(exception);
  } catch (const PeerLost& lost) {
    outcome.observed = lost.observed();
  } catch (...) {
  }
  return outcome;
}

RankProcess::RankProcess(const RankStart& start, const RankBody& body) : rank_(start.local.rank) {
  Pipe outcome = make_pipe(), out, err;
  if (rank_ > 0) out = make_pipe(), err = make_pipe();
  std::cout.flush();
  std::fflush(nullptr);  // what is buffered would be written by every child again
  const pid_t launcher = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw_errno("fork");
  if (pid_ == 0) {
    redirect(out.write_end, STDOUT_FILENO);
    redirect(err.write_end, STDERR_FILENO);
    for (FileDescriptor* mine : {&outcome.read_end, &out.read_end, &err.read_end, &out.write_end, &err.write_end}) {
      mine->reset();
    }
    run_child(start, body, launcher, outcome.write_end.get());
  }
  ::setpgid(pid_, start.group);  // in both processes, so that neither has to wait for the other
  outcome_ = std::move(outcome.read_end);
  out_ = std::move(out.read_end);
  err_ = std::move(err.read_end);
  for (const FileDescriptor* fd : {&outcome_, &out_, &err_}) set_nonblocking(*fd);
}

std::optional<ExitStatus> RankProcess::poll_exit() const {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return {};
  return ExitStatus{info.si_code != CLD_EXITED, info.si_status};
}

void RankProcess::wait_until_stopped() const {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
}

void RankProcess::reap() const {
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<RankOutcome> RankProcess::read_outcome() const {
  OutcomeHeader header;
  if (!read_all(outcome_.get(), &header, sizeof header)) return {};
  if (std::max(header.message_size, header.observed_size) > kLongestMessage) return {};
  RankOutcome outcome{header.exit_code, header.origin != 0, std::string(header.message_size, '\0'),
                      std::string(header.observed_size, '\0')};
  for (std::string* text : {&outcome.message, &outcome.observed}) {
    if (!read_all(outcome_.get(), text->data(), text->size())) return {};
  }
  return outcome;
}

}  // namespace mantissa
