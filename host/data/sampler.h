// Which rows of the data a rank trains on. A pure function of seed and step: the stream does not depend on the number
// of ranks, resuming needs no state, and an outside program can make the same batches. No torch.
#pragma once
#include <cstdint>
#include <vector>

#include "data/splitmix64.h"

namespace mantissa {

/// Which of the ranks.
struct Share {
  int rank = 0;
  int world_size = 1;
};

struct SamplerSettings {
  uint64_t seed = 0;
  int64_t batch = 1;  ///< rows per micro-batch over all ranks
  int64_t microbatches = 1;
  uint64_t num_rows = 1;  ///< to draw from, >= 1
};

/// Rows are drawn with replacement. Row g = (step * microbatches + microbatch) * batch + position of the run is row
/// splitmix64(splitmix64(seed) + g) % num_rows of the data.
class Sampler {
 public:
  explicit Sampler(const SamplerSettings& settings) : settings_(settings) {}

  /// `step` counts skipped steps; `position` is in [0, batch).
  uint64_t row(int64_t step, int64_t microbatch, int64_t position) const;

  /// The rows of one rank: positions [rank * batch / world_size, (rank + 1) * batch / world_size), rounded down.
  /// Ranks differ by one row at most. Throws UsageError if the rank would have none: batch < world_size.
  std::vector<uint64_t> rows_of(int64_t step, int64_t microbatch, Share share) const;

 private:
  SamplerSettings settings_;
};

}  // namespace mantissa
