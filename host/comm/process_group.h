// The ranks of a job: how they find each other, how long they wait, and how one learns why another has gone.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "comm/launcher.h"

namespace c10d {
class Backend;
}

namespace mantissa {

/// Where the ranks meet. Without a launcher's or the environment's word: one rank.
struct Rendezvous {
  int rank = 0;
  int world_size = 1;
  std::string address = "127.0.0.1";  ///< of rank 0's store
  int port = 0;
  int listen_fd = -1;         ///< rank 0: an inherited listening socket for the store; -1: bind `port`
  bool store_exists = false;  ///< the port already listens (torchrun's agent): all ranks are clients
  std::string store_prefix;   ///< keys of one attempt of a restarted job
};

/// Of a rank that `launch` started.
Rendezvous rendezvous_of(const LocalRank& local);

/// True if RANK or WORLD_SIZE is set: somebody else has started this process as a rank.
bool is_rank_by_environment();

/// Reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; nothing if none of them is set.
/// Throws UsageError where they contradict each other or cannot be read.
std::optional<Rendezvous> rendezvous_from_environment();

/// What a rank left in the store before it went.
struct Fault {
  int rank = 0;
  ExitCode exit_code = ExitCode::failed;
  std::string cause;
};

class ProcessGroup {
 public:
  /// Joins the other ranks; `timeout` bounds this and every later collective. Throws CommError.
  ProcessGroup(const Rendezvous& rendezvous, std::chrono::milliseconds timeout);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rendezvous_.rank; }
  int world_size() const { return rendezvous_.world_size; }

  /// The c10d backend; only comm/ looks inside. Not with one rank.
  c10d::Backend& backend();

  /// Runs one collective; if it throws, ends the group, finds out which rank is at fault and throws PeerFailed or
  /// PeerLost.
  void guarded(const std::string& what, const std::function<void()>& collective);

  /// Tells the others why this rank is about to go. Only the first call of a rank counts. Never throws.
  void report_fault(ExitCode exit_code, const std::string& cause) noexcept;

  /// Ends all that is under way, so that the peers notice at once. The group is of no use afterwards. Never throws.
  void abort() noexcept;

  /// The fault that `rank` has reported, waiting up to `patience` for it.
  std::optional<Fault> fault_of(int rank, std::chrono::milliseconds patience);

 private:
  struct State;
  [[noreturn]] void explain(const std::string& what, const std::string& reason);
  Rendezvous rendezvous_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<State> state_;
  bool reported_ = false;
};

}  // namespace mantissa
