// Which rows of the text a rank trains on. A pure function of seed and step: the stream does not depend on the number
// of ranks, resuming needs no state, and an outside program can make the same batches. No torch.
#pragma once
#include <cstdint>
#include <vector>

namespace mantissa {

/// One value of the SplitMix64 sequence (Steele, Lea, Flood 2014): its state is `x`.
uint64_t splitmix64(uint64_t x);

/// Which of the ranks.
struct Share {
  int rank = 0;
  int world_size = 1;
};

struct SamplerSettings {
  uint64_t seed = 0;
  int64_t batch = 1;  ///< rows per micro-batch over all ranks
  int64_t microbatches = 1;
  int64_t context = 1;  ///< bytes of a row
  int64_t length = 0;   ///< bytes of the training part
};

/// Rows are drawn with replacement. Row g = (step * microbatches + microbatch) * batch + position starts at
/// splitmix64(splitmix64(seed) + g) % (length - context).
class Sampler {
 public:
  /// Throws UsageError where the text is too short for one row.
  explicit Sampler(const SamplerSettings& settings);

  /// `step` counts skipped steps; `position` is in [0, batch).
  int64_t row_start(int64_t step, int64_t microbatch, int64_t position) const;

  /// Starts of the rows of one rank: positions [rank * batch / world_size, (rank + 1) * batch / world_size), rounded
  /// down. Ranks differ by one row at most. Throws UsageError if the rank would have none: batch < world_size.
  std::vector<int64_t> rows_of(int64_t step, int64_t microbatch, Share share) const;

 private:
  SamplerSettings settings_;
};

}  // namespace mantissa
