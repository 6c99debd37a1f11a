// Agreement: the ranks meet at named places, and a failure of one becomes the same failure of all.
//
// A rank that fails but can go on does not leave: it remembers the failure, takes part in gathers and reduces as usual,
// and says so in its next packet. Then every rank throws, and nobody sends any more.
#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/packet.h"
#include "comm/partial_norm.h"
#include "comm/transport.h"

namespace mantissa {

/// All packets of one exchange, combined in rank order: the same bits on every rank.
struct Agreed {
  PartialNorm norm;
  double loss_sum = 0, loss_weight = 0;
  int32_t decision = 0;                           ///< the largest
  uint32_t requests = 0;                          ///< all bits
  bool found_inf = false, norm_measured = false;  ///< of any rank
  double peak_memory = 0;                         ///< the largest, bytes
};

enum class ReduceOp { sum, min, max };

class Exchange {
 public:
  explicit Exchange(Transport& transport) : transport_(transport) {}

  /// Remembers that this rank has failed; only the first cause counts. It travels with the next packet.
  void remember_failure(std::exception_ptr cause);

  /// Runs `work`; what it throws is this rank's failure. For work that the other ranks do not wait for.
  template <class Work>
  void attempt(Work work) {
    try {
      work();
    } catch (...) {
      remember_failure(std::current_exception());
    }
  }

  /// [all ranks] Sends `mine` (sequence, status are filled in) and combines all packets. Throws this rank's own
  /// remembered failure, PeerFailed for another's, CommError if the ranks are not at the same place. Once it has
  /// thrown, all ranks know: further calls throw the same and send nothing.
  Agreed agree(Operation operation, Packet mine = {});

  /// [all ranks] agree() after running `work`, whose exception is this rank's failure.
  template <class Work>
  Agreed agree_after(Operation operation, Work work, Packet mine = {}) {
    attempt(work);
    return agree(operation, mine);
  }

  /// [all ranks] Combines `values` over the ranks in rank order, element by element; NaN on any rank gives NaN. The
  /// counts are agreed before anything is sent.
  void all_reduce(std::vector<double>& values, ReduceOp op);

  /// [all ranks] Every rank's `values`, by rank: [world_size][values.size()]. The counts are agreed before anything is
  /// sent.
  std::vector<double> all_gather(const std::vector<double>& values);

  Transport& transport() { return transport_; }

 private:
  Agreed combine(const std::vector<Packet>& packets);
  void check_same_place(const std::vector<Packet>& packets) const;
  [[noreturn]] void throw_peer_failure(int rank, ExitCode exit_code);
  Transport& transport_;
  uint64_t sequence_ = 0;
  std::exception_ptr failure_;  // of this rank, not told yet
  std::exception_ptr agreed_;   // all ranks know
  ExitCode exit_code_ = ExitCode::failed;
};

}  // namespace mantissa
