// What the ranks tell each other at an exchange: one packet of fixed size a rank, gathered by all, combined in rank
// order.
#pragma once
#include <cstdint>
#include <type_traits>

#include "comm/partial_norm.h"

namespace mantissa {

/// The places of a run where packets are exchanged. Ranks that meet with different ones have lost each other.
enum class Operation : uint32_t {
  none = 0,
  start,  ///< the same config, text and plugin on every rank
  load_plugin,
  create,
  plan,
  shard,
  backward,  ///< after backward: loss, partial norm, status
  decide,    ///< after decide: decision, status
  grad_norm,
  all_reduce,
  all_gather,
  evaluate,
  save,
  finish,
};

struct Packet {
  uint64_t sequence = 0;  ///< exchanges made so far
  Operation operation = Operation::none;
  int32_t exit_code = 0;       ///< 0: this rank is well; else it fails with this code, and the cause is in the store
  uint32_t requests = 0;       ///< bit mask of Request
  int32_t decision = 0;        ///< mts_decision
  double loss_sum = 0;         ///< nats, summed over this rank's targets
  double loss_weight = 0;      ///< targets
  uint64_t nonfinite = 0;      ///< gradient elements that are NaN or infinite
  double largest = 0;          ///< PartialNorm
  double scaled_sum = 0;       ///< PartialNorm
  double norm_type = 2;        ///< PartialNorm
  double loss_scale = 1;       ///< equal on all ranks
  uint64_t fingerprint = 0;    ///< of what must be equal on all ranks at this operation; 0 where nothing is compared
  uint64_t count = 0;          ///< values that follow in a payload, equal on all ranks
  double peak_memory = 0;      ///< peak RSS, bytes
  uint32_t found_inf = 0;      ///< 1: this rank's plugin found gradients that are not finite
  uint32_t norm_measured = 0;  ///< 1: this rank had to look at its gradients for the norm
  uint64_t reserved[2] = {};

  void set_norm(const PartialNorm& part) {
    norm_type = part.norm_type;
    largest = part.largest;
    scaled_sum = part.scaled_sum;
    nonfinite = part.nonfinite;
  }
  PartialNorm norm() const { return {norm_type, largest, scaled_sum, nonfinite}; }
};
static_assert(sizeof(Packet) == 128 && std::is_trivially_copyable_v<Packet>);

/// Bits of Packet::requests: what a rank wants to happen after this step. Combined by or.
enum Request : uint32_t { kStopInterrupted = 1, kStopTerminated = 2, kStopHungUp = 4 };

}  // namespace mantissa
