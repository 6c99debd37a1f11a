// The narrow interface between the engine and the wires. It knows layouts and numbers, no modules; nothing right of
// comm/ calls a collective by name. Every call marked [all ranks] must be made by all ranks in the same order; it ends
// with CommError or PeerFailed when a rank is lost or the time limit passes.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/packet.h"
#include "comm/partial_norm.h"
#include "comm/reduce_kernel.h"

namespace mantissa {

class ProcessGroup;

using UnitId = size_t;

/// Half-open range of elements.
struct Range {
  int64_t begin = 0, end = 0;
};

/// How the flat parameter of a unit lies on the ranks: `padded` elements, cut into world_size equal shards, or whole on
/// every rank if `replicated`.
struct UnitLayout {
  std::string name;         ///< for messages
  int64_t padded = 0;       ///< elements, padding included; a multiple of world_size
  std::vector<Range> used;  ///< of this rank's shard: what is not padding; nothing else is reduced or measured
  at::ScalarType storage_dtype = at::kFloat;  ///< shard and reduced gradient
  at::ScalarType reduce_dtype = at::kFloat;   ///< gradients on the wire
  bool replicated = false;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  /// Makes room for a unit, its shard zero. The same layouts in the same order on all ranks.
  virtual UnitId add_unit(const UnitLayout& layout) = 0;
  /// [all ranks] Sets the unit from rank 0's `full`: [padded] of storage_dtype; the other ranks' is scratch.
  virtual void scatter_from_rank_0(UnitId unit, at::Tensor full) = 0;

  /// This rank's piece: [padded / world_size], or [padded] if replicated, of storage_dtype. Lives as long as the
  /// transport.
  virtual at::Tensor shard(UnitId unit) = 0;
  /// The reduced gradient of that piece, same shape and type; holds what the last reduce left.
  virtual at::Tensor grad_shard(UnitId unit) = 0;

  /// [all ranks] Memory that holds the full parameters as `dtype`, padded elements, until it is released. `dtype` is
  /// the unit's param_dtype for computing, its storage_dtype for saving.
  virtual at::DataPtr acquire(UnitId unit, at::ScalarType dtype) = 0;
  virtual void release(UnitId unit, at::DataPtr memory) = 0;
  /// This rank has changed its shard: the next acquire must see it.
  virtual void publish(UnitId unit) = 0;

  /// This rank's own full gradient, [padded] of reduce_dtype, not initialised: fill what is no padding, then reduce.
  virtual at::Tensor gradient(UnitId unit) = 0;
  /// [all ranks] Sums the gradients of all ranks in rank order into the gradient shard, scaled, in float32 or wider and
  /// rounded to reduce_dtype once, and gives `gradient` back. Returns the partial norm of the gradient shard, taken in
  /// the same pass (comm/reduce_kernel.h).
  virtual PartialNorm reduce(UnitId unit, const ReduceOptions& options) = 0;

  /// [all ranks] Every rank's packet, by rank.
  virtual std::vector<Packet> exchange(const Packet& mine) = 0;
  /// [all ranks] Every rank's values, by rank: [world_size][values.size()]. The size must be equal on all ranks.
  virtual std::vector<double> all_gather(std::span<const double> values) = 0;
  /// [all ranks] Rank 0's bytes, of any tensor, into everyone's.
  virtual void broadcast_from_rank_0(at::Tensor tensor) = 0;
  /// [all ranks]
  virtual void barrier() = 0;

  virtual uint64_t messages() const = 0;  ///< collectives issued so far
  virtual double seconds() const = 0;     ///< spent in collectives so far
  virtual ProcessGroup& group() = 0;
};

/// The portable implementation, over c10d: Gloo on CPUs. One rank needs no group at all.
std::unique_ptr<Transport> make_transport(ProcessGroup& group);

}  // namespace mantissa
