// The ranks of a job: how they find each other, how long they wait, and how one learns why another has gone.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/rendezvous.h"

namespace c10d {
class Backend;
}

namespace mantissa {

/// What a rank left in the store before it went.
struct Fault {
  int rank = 0;
  ExitCode exit_code = ExitCode::failed;
  std::string cause;
};

class ProcessGroup {
 public:
  /// Joins the other ranks; `timeout` bounds this and every later collective. Throws UsageError, CommError; see
  /// meeting.h.
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

  /// Ends all that is under way, so that the peers notice at once; rank 0 keeps the store until they have asked for the
  /// cause, up to 3 s. The group is of no use afterwards. Never throws.
  void abort() noexcept;

  /// The fault that `rank` has reported, waiting up to `patience` for it.
  std::optional<Fault> fault_of(int rank, std::chrono::milliseconds patience);

 private:
  struct State;
  void close() noexcept;
  // Rank 0 keeps the store: it goes last, unless a launcher has seen it all. `silent` ranks will not ask.
  void serve_until_heard(const std::vector<int>& silent) noexcept;
  [[noreturn]] void explain(const std::string& what, const std::string& reason);
  Rendezvous rendezvous_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<State> state_;
  bool reported_ = false;
};

}  // namespace mantissa
