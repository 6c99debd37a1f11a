// The one pass in which gradients of all ranks become a rank's gradient shard, and its norm is taken. Knows no torch.
#pragma once
#include <cstdint>
#include <span>

#include "comm/partial_norm.h"

namespace mantissa {

struct ReduceOptions {
  double scale = 1;         ///< the sum over ranks is multiplied by it (1 / world_size: the mean)
  bool accumulate = false;  ///< add to the gradient shard instead of overwriting it
  double norm_type = 2;     ///< of the partial norm
};

/// into[i] = (accumulate ? into[i] : 0) + scale * sum over ranks of parts[r][i], summed in rank order in T.
/// Returns the partial norm of `into` afterwards. All parts are as long as `into`.
PartialNorm reduce_and_measure(std::span<float> into, std::span<const float* const> parts,
                               const ReduceOptions& options);
PartialNorm reduce_and_measure(std::span<double> into, std::span<const double* const> parts,
                               const ReduceOptions& options);

}  // namespace mantissa
