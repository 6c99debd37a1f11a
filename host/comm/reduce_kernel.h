// The one pass in which gradients of all ranks become a rank's gradient shard, and its norm is taken.
#pragma once
#include <cstdint>
#include <span>

#include "comm/partial_norm.h"

namespace mantissa {

struct ReduceOptions {
  double scale = 1;         ///< of the sum over ranks, 1 / world_size for a mean
  bool accumulate = false;  ///< add to the gradient that is there; otherwise overwrite it
  double norm_type = 2;     ///< of the partial norm
};

/// into[i] = (accumulate ? into[i] : 0) + wire(scale * sum over ranks of parts[r][i]), where wire() rounds to the type
/// that gradients have between ranks: T sums in rank order in Compute<T> or Compute<Wire>, whichever is wider, and
/// rounds to T once. A sum that leaves that type is taken again in a wider one, so that a mean is infinite only if the
/// mean is. Returns the partial norm of `into` afterwards. All parts are as long as `into`.
template <class T, class Wire>
PartialNorm reduce_and_measure(std::span<T> into, std::span<const Wire* const> parts, const ReduceOptions& options);

/// into[i] = scale * sum over ranks of parts[r][i], as above; nothing is measured.
template <class Wire>
void reduce_parts(std::span<Wire> into, std::span<const Wire* const> parts, double scale);

}  // namespace mantissa
