#include "data/text.h"

#include <cassert>
#include <cmath>
#include <string>
#include <system_error>

#include "base/error.h"
#include "data/windows.h"

namespace mantissa {
namespace {

MappedFile map_text(const std::filesystem::path& path) {
  try {
    return MappedFile(path);
  } catch (const std::system_error& error) {
    throw UsageError("data.path: cannot read " + path.string() + ": " + error.code().message() +
                     "; need a text file that this user may read");
  }
}

}  // namespace

TextData::TextData(const std::filesystem::path& path, double heldout, int64_t context)
    : path_(path), file_(map_text(path)), context_(context) {
  const size_t size = all().size();
  if (size == 0) throw UsageError("data.path: " + path.string() + " is empty; need a text to train on");
  train_size_ = static_cast<size_t>(std::floor((1 - heldout) * static_cast<double>(size)));
  if (static_cast<int64_t>(train_size_) <= context) {
    throw UsageError("data.path: " + path.string() + " has " + std::to_string(train_size_) + " bytes to train on (of " +
                     std::to_string(size) + "); need more than model.context = " + std::to_string(context) +
                     ": give a longer text, a smaller context or a smaller data.heldout");
  }
  if (size - train_size_ == 1) {
    throw UsageError("data.heldout: of " + path.string() + " (" + std::to_string(size) +
                     " bytes) 1 byte is held out; need 2 or more to predict one from another, or data.heldout = 0");
  }
}

Batch TextData::rows(std::span<const uint64_t> starts) const { return rows_at(train(), starts, context_); }

int64_t TextData::num_heldout_rows() const { return num_windows(heldout(), context_); }

Batch TextData::heldout_rows(int64_t first, int64_t count) const {
  return windows_from(heldout(), context_, {first, count});
}

std::string TextData::describe() const {
  return path_.filename().string() + ", " + std::to_string(all().size()) + " bytes, " +
         std::to_string(heldout().size()) + " held out";
}

Batch rows_at(std::span<const uint8_t> text, std::span<const uint64_t> starts, int64_t context) {
  Batch batch;
  batch.rows = static_cast<int64_t>(starts.size());
  batch.num_targets = batch.rows * context;
  batch.inputs.reserve(static_cast<size_t>(batch.num_targets));
  batch.targets.reserve(static_cast<size_t>(batch.num_targets));
  const auto length = static_cast<size_t>(context);
  for (const uint64_t start : starts) {
    assert(start + length < text.size());
    const auto row = text.subspan(start, length + 1);
    batch.inputs.insert(batch.inputs.end(), row.begin(), row.end() - 1);
    batch.targets.insert(batch.targets.end(), row.begin() + 1, row.end());
  }
  return batch;
}

}  // namespace mantissa
