#include "comm/launcher.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/terminal.h"
#include "comm/launcher_signals.h"
#include "comm/line_relay.h"
#include "comm/rank_process.h"
#include "comm/verdict.h"

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kAfterTerm(1);
// What comes sooner belongs to the first signal: timeout(1), say, sends it to the process and then to its group.
constexpr std::chrono::milliseconds kSameRequest(100);

[[noreturn]] void throw_errno(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

// Without a terminal these may be closed, and a pipe of ours would take their numbers.
void open_standard_streams() {
  int fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd >= 0) ::close(fd);
}

// Where the ranks will find each other. Bound before the fork, so that no other program can take the port in between.
struct ListeningSocket {
  FileDescriptor socket;
  int port = 0;
};

ListeningSocket listen_locally() {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) throw_errno("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), generic, size) != 0) throw_errno("bind to 127.0.0.1");
  if (::listen(socket.get(), SOMAXCONN) != 0) throw_errno("listen on 127.0.0.1");
  if (::getsockname(socket.get(), generic, &size) != 0) throw_errno("getsockname");
  return {std::move(socket), ntohs(address.sin_port)};
}

// The ranks of one launch, from the first fork to the last wait.
class Job {
 public:
  Job(int world_size, std::chrono::milliseconds grace) : world_size_(world_size), grace_(grace) {}
  Job(const Job&) = delete;
  ~Job() { end_everything(); }

  void start(const RankBody& body);
  JobOutcome run();

 private:
  // How far the launcher has gone in ending the others. Each phase but the first has a deadline for the next.
  enum class Phase { running, grace, terminating, killing };

  void start_rank(int rank, const RankBody& body);
  void forget_in_child(int rank);

  void wait();
  int poll_timeout_ms() const;
  void handle_signals();
  void interrupt(int signal);
  void suspend();
  void move_output();
  void collect_ended();
  EndedRank describe_end(const RankProcess& rank, const ExitStatus& status) const;
  EndedRank describe_death(int rank, int signal) const;
  void enter(Phase phase);
  void advance();
  void warn_of_hung_ranks() const;
  void signal_group(int signal) const;
  bool has_ended(const RankProcess& rank) const;
  void drain_output();
  void end_everything();

  const int world_size_;
  const std::chrono::milliseconds grace_;
  LauncherSignals signals_;
  ListeningSocket listening_;
  std::vector<RankProcess> ranks_;
  std::vector<EndedRank> ended_;
  LineSink stdout_{STDOUT_FILENO}, stderr_{STDERR_FILENO};
  std::vector<LineRelay> relays_;
  std::vector<pollfd> polled_;
  Phase phase_ = Phase::running;
  std::optional<Clock::time_point> deadline_;
  int interrupted_by_ = 0;
  Clock::time_point interrupted_at_;
};

void Job::start(const RankBody& body) {
  listening_ = listen_locally();
  for (int rank = 0; rank < world_size_; ++rank) start_rank(rank, body);
  listening_.socket.reset();  // rank 0 has it now
}

void Job::start_rank(int rank, const RankBody& body) {
  RankStart start;
  start.local = {rank, world_size_, rank == 0 ? listening_.socket.get() : -1, listening_.port};
  start.group = ranks_.empty() ? 0 : ranks_.front().pid();
  start.signal_mask = signals_.previous_mask();
  start.forget_launcher = [this, rank] { forget_in_child(rank); };
  try {
    ranks_.emplace_back(start, body);
  } catch (const std::system_error& error) {
    throw CommError("rank " + std::to_string(rank) + " of " + std::to_string(world_size_) +
                    " cannot be started: " + error.what() +
                    "; use fewer ranks, or raise the limits of processes, open files or memory (ulimit -a)");
  }
  if (rank == 0) return;
  relays_.emplace_back(rank, ranks_.back().take_out(), stdout_);
  relays_.emplace_back(rank, ranks_.back().take_err(), stderr_);
}

void Job::forget_in_child(int rank) {
  ranks_.clear();
  relays_.clear();
  signals_.close_in_child();
  if (rank != 0) listening_.socket.reset();
}

JobOutcome Job::run() {
  while (ended_.size() < ranks_.size()) {
    wait();
    handle_signals();
    move_output();
    collect_ended();
    advance();
  }
  signal_group(SIGKILL);  // what the ranks themselves have started
  drain_output();
  return verdict(ended_);
}

void Job::wait() {
  polled_.assign(1, {signals_.fd(), POLLIN, 0});
  for (const LineRelay& relay : relays_) {
    if (relay.is_open() && !relay.sink().is_full()) polled_.push_back({relay.fd(), POLLIN, 0});
  }
  for (const LineSink* sink : {&stdout_, &stderr_}) {
    if (sink->has_pending()) polled_.push_back({sink->fd(), POLLOUT, 0});
  }
  ::poll(polled_.data(), polled_.size(), poll_timeout_ms());
}

int Job::poll_timeout_ms() const {
  if (!deadline_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

void Job::handle_signals() {
  while (const int signal = signals_.next()) {
    if (signal == SIGTSTP) {
      suspend();
    } else if (signal != SIGCHLD) {
      interrupt(signal);
    }
  }
}

// Ctrl-Z: the ranks, which have no terminal of their own, stop before the launcher does and go on after it. Once rank 0
// stands still, it draws no bar into the shell's prompt.
void Job::suspend() {
  signal_group(SIGSTOP);
  for (const RankProcess& rank : ranks_) rank.wait_until_stopped();
  const std::string_view erase = line_start(STDOUT_FILENO);
  if (::write(STDOUT_FILENO, erase.data(), erase.size()) < 0) log::debug("the progress bar could not be erased");
  signals_.stop_here();
  signal_group(SIGCONT);
}

void Job::interrupt(int signal) {
  if (interrupted_by_ == 0) {
    interrupted_by_ = signal;
    interrupted_at_ = Clock::now();
    return signal_group(signal);
  }
  // A terminal that goes sends SIGHUP more than once: the kernel, the shell, the session manager.
  const bool impatient = signal != SIGHUP && Clock::now() >= interrupted_at_ + kSameRequest;
  if (impatient) enter(Phase::killing);
}

// Reads and writes only what poll said is ready; `polled_` is of the last wait.
void Job::move_output() {
  for (const pollfd& ready : polled_) {
    if (ready.revents == 0) continue;
    for (LineRelay& relay : relays_) {
      if (relay.is_open() && relay.fd() == ready.fd) relay.read_some();
    }
    for (LineSink* sink : {&stdout_, &stderr_}) {
      if (sink->fd() == ready.fd) sink->write_some();
    }
  }
}

bool Job::has_ended(const RankProcess& rank) const {
  return std::any_of(ended_.begin(), ended_.end(), [&](const EndedRank& end) { return end.rank == rank.rank(); });
}

void Job::collect_ended() {
  for (const RankProcess& rank : ranks_) {
    if (has_ended(rank)) continue;
    const std::optional<ExitStatus> status = rank.poll_exit();
    if (!status) continue;
    ended_.push_back(describe_end(rank, *status));
    if (breaks_job(ended_.back().kind) && phase_ == Phase::running) enter(Phase::grace);
  }
}

EndedRank Job::describe_end(const RankProcess& rank, const ExitStatus& status) const {
  EndedRank end{.rank = rank.rank(), .when = Clock::now()};
  const std::optional<RankOutcome> outcome = rank.read_outcome();
  if (!outcome && status.by_signal) return describe_death(rank.rank(), status.code);
  if (!outcome) {
    end.kind = EndKind::silent;
    end.exit_code = status.code != 0 ? status.code : static_cast<int>(ExitCode::failed);
    end.message = "left early with exit code " + std::to_string(status.code) +
                  ": something called exit() in the middle of the run (see its lines above)";
    return end;
  }
  end.exit_code = outcome->exit_code;
  end.message = outcome->message;
  end.observed = outcome->observed;
  const bool in_order = outcome->exit_code == static_cast<int>(ExitCode::interrupted) ||
                        outcome->exit_code == static_cast<int>(ExitCode::terminated) ||
                        outcome->exit_code == static_cast<int>(ExitCode::hung_up);
  if (outcome->exit_code == 0) {
    end.kind = EndKind::success;
  } else if (in_order) {
    end.kind = phase_ >= Phase::terminating ? EndKind::ended_by_launcher : EndKind::stopped;
  } else {
    end.kind = outcome->origin ? EndKind::failed : EndKind::heard;
  }
  return end;
}

EndedRank Job::describe_death(int rank, int signal) const {
  EndedRank end{.rank = rank, .signal = signal, .exit_code = static_cast<int>(ExitCode::failed), .when = Clock::now()};
  const bool ours =
      (signal == SIGKILL && phase_ == Phase::killing) || (signal == SIGTERM && phase_ >= Phase::terminating);
  const bool passed_on = interrupted_by_ != 0 && (signal == SIGINT || signal == SIGTERM || signal == SIGHUP);
  end.kind = ours ? EndKind::ended_by_launcher : passed_on ? EndKind::interrupted : EndKind::killed;
  if (interrupted_by_ != 0 && end.kind != EndKind::killed) {
    end.exit_code = 128 + interrupted_by_;
    end.message = "stopped by " + signal_text(interrupted_by_);
  }
  return end;
}

void Job::enter(Phase phase) {
  phase_ = phase;
  switch (phase) {
    case Phase::running: break;
    case Phase::grace: deadline_ = Clock::now() + grace_; break;
    case Phase::terminating:
      warn_of_hung_ranks();
      signal_group(SIGTERM);
      deadline_ = Clock::now() + kAfterTerm;
      break;
    case Phase::killing:
      signal_group(SIGKILL);
      deadline_.reset();
      break;
  }
}

void Job::advance() {
  if (!deadline_ || Clock::now() < *deadline_ || ended_.size() == ranks_.size()) return;
  enter(phase_ == Phase::grace ? Phase::terminating : Phase::killing);
}

void Job::warn_of_hung_ranks() const {
  for (const RankProcess& rank : ranks_) {
    if (has_ended(rank)) continue;
    log::warning("rank " + std::to_string(rank.rank()) + " did not end within " + std::to_string(grace_.count()) +
                 " ms of a peer's failure and is ended; mend what the error below names");
  }
}

// Safe to the end: no rank is reaped before all have ended, so the group cannot be another's.
void Job::signal_group(int signal) const {
  if (!ranks_.empty()) ::kill(-ranks_.front().pid(), signal);
}

// All ranks have ended: what they wrote is in the pipes. A signal to stop gives up on a reader that does not read.
void Job::drain_output() {
  for (LineRelay& relay : relays_) {
    while (relay.is_open() && relay.read_some()) {
    }
    relay.finish();
  }
  while (stdout_.has_pending() || stderr_.has_pending()) {
    wait();
    for (int signal = signals_.next(); signal != 0; signal = signals_.next()) {
      if (signal == SIGTSTP) signals_.stop_here();
      if (signal == SIGINT || signal == SIGTERM) return;
    }
    move_output();
  }
}

void Job::end_everything() {
  signal_group(SIGKILL);
  for (const RankProcess& rank : ranks_) rank.reap();
}

}  // namespace

JobOutcome launch(int world_size, const RankBody& body, std::chrono::milliseconds grace) {
  if (world_size < 1) {
    throw UsageError("cannot start " + std::to_string(world_size) + " ranks; need at least 1 (--ranks)");
  }
  open_standard_streams();
  log::share_with_forks();
  Job job(world_size, grace);
  try {
    job.start(body);
  } catch (const std::system_error& error) {
    throw CommError("the ranks cannot be started: " + std::string(error.what()));
  }
  return job.run();
}

}  // namespace mantissa
