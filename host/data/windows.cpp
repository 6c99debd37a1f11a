#include "data/windows.h"

#include <algorithm>

namespace mantissa {
namespace {

int64_t divided_up(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace

EvaluationWindows::EvaluationWindows(std::span<const uint8_t> text, int64_t context, int64_t rows_per_rank)
    : text_(text), context_(context), rows_per_rank_(rows_per_rank) {}

int64_t EvaluationWindows::num_targets() const { return std::max<int64_t>(static_cast<int64_t>(text_.size()) - 1, 0); }

int64_t EvaluationWindows::num_windows() const { return divided_up(num_targets(), context_); }

int64_t EvaluationWindows::num_forwards(int world_size) const {
  return divided_up(num_windows(), rows_per_rank_ * world_size);
}

Batch EvaluationWindows::batch(int64_t forward, Share share) const {
  const auto cells = static_cast<size_t>(rows_per_rank_ * context_);
  Batch batch{.rows = rows_per_rank_, .context = context_, .inputs = {}, .targets = {}};
  batch.inputs.reserve(cells);
  batch.targets.reserve(cells);
  const int64_t first = (forward * share.world_size + share.rank) * rows_per_rank_;
  for (int64_t window = first; window < first + rows_per_rank_; ++window) append_window(window, batch);
  return batch;
}

// Leaves both vectors at the same number of whole rows.
void EvaluationWindows::append_window(int64_t window, Batch& batch) const {
  const int64_t begin = window * context_;
  const int64_t count = std::clamp<int64_t>(num_targets() - begin, 0, context_);
  const auto padding = static_cast<size_t>(context_ - count);
  if (count > 0) {
    const auto bytes = text_.subspan(static_cast<size_t>(begin), static_cast<size_t>(count) + 1);
    batch.inputs.insert(batch.inputs.end(), bytes.begin(), bytes.end() - 1);
    batch.targets.insert(batch.targets.end(), bytes.begin() + 1, bytes.end());
  }
  batch.inputs.insert(batch.inputs.end(), padding, 0);
  batch.targets.insert(batch.targets.end(), padding, kIgnoredTarget);
  batch.num_targets += count;
}

}  // namespace mantissa
