// Rows of text as the integers a model takes. No torch: `train` wraps the vectors without a copy (at::from_blob).
#pragma once
#include <cstdint>
#include <vector>

namespace mantissa {

/// A target that does not count: the default ignore_index of torch's cross_entropy.
constexpr int64_t kIgnoredTarget = -100;

struct Batch {
  int64_t rows = 0;
  int64_t context = 0;
  std::vector<int64_t> inputs;   ///< [rows, context], row-major, bytes 0 to 255
  std::vector<int64_t> targets;  ///< [rows, context]: the byte after each input, or kIgnoredTarget
  int64_t num_targets = 0;       ///< those that count
};

}  // namespace mantissa
