// The held-out text cut into windows for an evaluation, shared out over ranks. No torch.
//
// Window k has the inputs [k * context, (k + 1) * context) and the bytes one later as targets: inputs do not overlap,
// and every byte but the first is a target exactly once, whatever the ranks. The last window may be short: it is filled
// up with zeros whose targets are ignored (a causal model does not see them before the targets that count).
#pragma once
#include <cstdint>
#include <span>

#include "data/batch.h"
#include "data/sampler.h"

namespace mantissa {

class EvaluationWindows {
 public:
  /// `text` must outlive this. `rows_per_rank` >= 1: windows of one forward of one rank.
  EvaluationWindows(std::span<const uint8_t> text, int64_t context, int64_t rows_per_rank);

  int64_t num_windows() const;
  /// Targets over all ranks: the loss is the sum over all of them divided by this.
  int64_t num_targets() const;
  /// Forwards of every rank: the same number, as each is a collective.
  int64_t num_forwards(int world_size) const;
  /// Always rows_per_rank rows. Those beyond the last window are spare: all their targets are ignored. A batch may have
  /// num_targets 0: take the sum of its losses, not the mean.
  Batch batch(int64_t forward, Share share) const;

 private:
  void append_window(int64_t window, Batch& batch) const;

  std::span<const uint8_t> text_;
  int64_t context_;
  int64_t rows_per_rank_;
};

}  // namespace mantissa
