#include "fsdp/layout.h"

#include <algorithm>

namespace mantissa {
namespace {

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

FlatLayout::FlatLayout(const std::vector<int64_t>& numels, int world_size, bool replicated)
    : numels_(numels), replicated_(replicated) {
  int64_t end = 0;
  for (int64_t numel : numels_) {
    offsets_.push_back(end);
    end = round_up(end + numel, kAlignment);
  }
  const int64_t quantum = kAlignment * world_size;
  padded_ = std::max(round_up(end, quantum), quantum);
  shard_numel_ = replicated ? padded_ : padded_ / world_size;
}

std::vector<Piece> FlatLayout::pieces(int rank) const {
  const int64_t begin = replicated_ ? 0 : rank * shard_numel_, end = begin + shard_numel_;
  std::vector<Piece> pieces;
  for (size_t i = 0; i < numels_.size(); ++i) {
    const int64_t from = std::max(begin, offsets_[i]), to = std::min(end, offsets_[i] + numels_[i]);
    if (from < to) pieces.push_back({i, from - offsets_[i], from - begin, to - from});
  }
  return pieces;
}

}  // namespace mantissa
