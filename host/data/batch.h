// Rows of a data set as the numbers a model takes. No torch: `train` wraps the vectors without a copy (at::from_blob).
#pragma once
#include <cstdint>
#include <vector>

namespace mantissa {

/// A target that does not count: the default ignore_index of torch's cross_entropy.
constexpr int64_t kIgnoredTarget = -100;

/// Each row has the same number of inputs and of targets; all vectors are row-major. Text has inputs, generated rows
/// have features.
struct Batch {
  int64_t rows = 0;
  std::vector<int64_t> inputs;   ///< [rows, context]: bytes, 0 to 255
  std::vector<float> features;   ///< [rows, features]
  std::vector<int64_t> targets;  ///< [rows, context]: the byte after each input; or [rows, 1]: the label of each row;
                                 ///< or kIgnoredTarget
  int64_t num_targets = 0;       ///< those that count
};

}  // namespace mantissa
