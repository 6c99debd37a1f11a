// What a run trains on, as the trainer sees it: rows to draw from, and rows that are held out. No torch.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "data/batch.h"

namespace mantissa {

class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Different rows to train on; the sampler draws from [0, num_rows). At least 1.
  virtual uint64_t num_rows() const = 0;
  virtual Batch rows(std::span<const uint64_t> indices) const = 0;
  /// Of a row to train on.
  virtual int64_t targets_per_row() const = 0;

  /// 0: nothing is held out.
  virtual int64_t num_heldout_rows() const = 0;
  /// Always `count` rows, from row `first`. Those beyond the last are spare: all their targets are ignored. A batch may
  /// have num_targets 0: take the sum of its losses, not the mean.
  virtual Batch heldout_rows(int64_t first, int64_t count) const = 0;

  /// Targets are bytes of a text, so that a loss is one of nats per byte.
  virtual bool is_text() const = 0;
  /// 0 without a file. Ranks whose files differ in size train on different data.
  virtual uint64_t file_size() const = 0;
  /// One line for people, e.g. "kjv.txt, 4404445 bytes, 220223 held out".
  virtual std::string describe() const = 0;
};

}  // namespace mantissa
