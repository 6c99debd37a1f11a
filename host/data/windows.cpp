#include "data/windows.h"

#include <algorithm>

namespace mantissa {
namespace {

int64_t num_targets(std::span<const uint8_t> text) {
  return std::max<int64_t>(static_cast<int64_t>(text.size()) - 1, 0);
}

// Leaves both vectors at the same number of whole rows.
void append_window(std::span<const uint8_t> text, int64_t context, int64_t window, Batch& batch) {
  const int64_t begin = window * context;
  const int64_t count = std::clamp<int64_t>(num_targets(text) - begin, 0, context);
  const auto padding = static_cast<size_t>(context - count);
  if (count > 0) {
    const auto bytes = text.subspan(static_cast<size_t>(begin), static_cast<size_t>(count) + 1);
    batch.inputs.insert(batch.inputs.end(), bytes.begin(), bytes.end() - 1);
    batch.targets.insert(batch.targets.end(), bytes.begin() + 1, bytes.end());
  }
  batch.inputs.insert(batch.inputs.end(), padding, 0);
  batch.targets.insert(batch.targets.end(), padding, kIgnoredTarget);
  batch.num_targets += count;
}

}  // namespace

int64_t num_windows(std::span<const uint8_t> text, int64_t context) {
  return (num_targets(text) + context - 1) / context;
}

Batch windows_from(std::span<const uint8_t> text, int64_t context, WindowRange range) {
  Batch batch;
  batch.rows = range.count;
  const auto cells = static_cast<size_t>(range.count * context);
  batch.inputs.reserve(cells);
  batch.targets.reserve(cells);
  for (int64_t i = 0; i < range.count; ++i) append_window(text, context, range.first + i, batch);
  return batch;
}

}  // namespace mantissa
