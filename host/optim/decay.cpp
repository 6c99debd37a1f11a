#include "optim/decay.h"

namespace mantissa {

std::vector<DecayStretch> decay_stretches(const std::vector<Piece>& pieces, int64_t shard_numel,
                                          const std::vector<double>& weight_decay) {
  std::vector<DecayStretch> stretches;
  for (const Piece& piece : pieces) {
    const double decay = weight_decay[piece.parameter];
    if (stretches.empty()) stretches.push_back({0, shard_numel, decay});
    if (stretches.back().weight_decay == decay) continue;
    stretches.back().end = piece.shard_offset;
    stretches.push_back({piece.shard_offset, shard_numel, decay});
  }
  return stretches;
}

}  // namespace mantissa
