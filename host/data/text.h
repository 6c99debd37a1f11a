// A text file as bytes: its first part to train on, the rest held out.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/mapped_file.h"
#include "data/dataset.h"

namespace mantissa {

/// Row i is the `context` bytes that begin at byte i of the training part, its targets are the bytes one later.
///
/// Mapped read-only: all ranks of a machine share its pages, and no part is read before it is used. Do not shorten the
/// file while a run uses it (replace it by rename): see MappedFile.
class TextData final : public Dataset {
 public:
  /// `heldout` in [0, 1): the training part has floor((1 - heldout) * size) bytes. `context`: bytes of a row.
  /// Throws UsageError: no such file, a folder, not readable, empty, or a part too short to make a row of.
  TextData(const std::filesystem::path& path, double heldout, int64_t context);

  std::span<const uint8_t> all() const { return file_.bytes(); }
  std::span<const uint8_t> train() const { return all().first(train_size_); }
  /// Empty if nothing is held out, else at least 2 bytes.
  std::span<const uint8_t> heldout() const { return all().subspan(train_size_); }

  uint64_t num_rows() const override { return train_size_ - static_cast<size_t>(context_); }
  Batch rows(std::span<const uint64_t> starts) const override;
  int64_t targets_per_row() const override { return context_; }
  int64_t num_heldout_rows() const override;
  Batch heldout_rows(int64_t first, int64_t count) const override;
  bool is_text() const override { return true; }
  uint64_t file_size() const override { return all().size(); }
  std::string describe() const override;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  int64_t context_;
  size_t train_size_ = 0;
};

/// Rows of `context` bytes that begin at `starts`, and the bytes one later. Each start + context must be within `text`.
Batch rows_at(std::span<const uint8_t> text, std::span<const uint64_t> starts, int64_t context);

}  // namespace mantissa
