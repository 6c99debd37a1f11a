// Which stretches of a flat shard decay, and how much: the parameter groups of a torch.optim optimizer, seen from one
// rank's shard. Pure arithmetic: no torch, no ranks.
#pragma once
#include <cstdint>
#include <vector>

#include "fsdp/layout.h"

namespace mantissa {

/// Elements [begin, end) of a shard.
struct DecayStretch {
  int64_t begin = 0, end = 0;
  double weight_decay = 0;
};

/// Cuts a shard of `shard_numel` elements at its pieces; stretches of one decay are joined, and padding, whose values
/// and gradients are 0, belongs to what stands before it. `weight_decay`: of each parameter of the layout.
std::vector<DecayStretch> decay_stretches(const std::vector<Piece>& pieces, int64_t shard_numel,
                                          const std::vector<double>& weight_decay);

}  // namespace mantissa
