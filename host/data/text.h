// A text file as bytes: its first part to train on, the rest held out.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/mapped_file.h"
#include "data/batch.h"

namespace mantissa {

/// Mapped read-only: all ranks of a machine share its pages, and no part is read before it is used. Do not shorten the
/// file while a run uses it (replace it by rename): see MappedFile.
class TextData {
 public:
  /// `heldout` in [0, 1): the training part has floor((1 - heldout) * size) bytes. `context`: bytes of a row.
  /// Throws UsageError: no such file, a folder, not readable, empty, or a part too short to make a row of.
  TextData(const std::filesystem::path& path, double heldout, int64_t context);

  std::span<const uint8_t> all() const { return file_.bytes(); }
  std::span<const uint8_t> train() const { return all().first(train_size_); }
  /// Empty if nothing is held out, else at least 2 bytes.
  std::span<const uint8_t> heldout() const { return all().subspan(train_size_); }

 private:
  MappedFile file_;
  size_t train_size_ = 0;
};

/// Rows of `context` bytes that begin at `starts`, and the bytes one later. Each start + context must be within `text`.
Batch rows_at(std::span<const uint8_t> text, std::span<const int64_t> starts, int64_t context);

}  // namespace mantissa
