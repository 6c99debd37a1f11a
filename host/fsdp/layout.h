// How parameters lie in one flat vector, and which piece of it each rank holds. Pure arithmetic: no torch, no ranks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace mantissa {

/// A stretch of one parameter on one rank.
struct Piece {
  size_t parameter = 0;          ///< index into the layout
  int64_t parameter_offset = 0;  ///< where it starts in the parameter, elements
  int64_t shard_offset = 0;      ///< where it starts in the rank's shard
  int64_t numel = 0;             ///< never 0
};

/// Parameters one after the other, each aligned to kAlignment elements, padded so that every rank's shard has one size.
class FlatLayout {
 public:
  static constexpr int64_t kAlignment = 16;  // elements: a cache line of float32

  /// `numels`: elements of each parameter, 0 allowed. Replicated: every rank's shard is the whole.
  FlatLayout(const std::vector<int64_t>& numels, int world_size, bool replicated);

  size_t num_parameters() const { return numels_.size(); }
  int64_t numel(size_t parameter) const { return numels_[parameter]; }
  int64_t offset(size_t parameter) const { return offsets_[parameter]; }
  int64_t padded() const { return padded_; }  ///< at least one element a rank
  int64_t shard_numel() const { return shard_numel_; }
  bool replicated() const { return replicated_; }

  /// What `rank` holds, in the order of the parameters; nothing for padding.
  std::vector<Piece> pieces(int rank) const;

 private:
  std::vector<int64_t> numels_, offsets_;
  int64_t padded_ = 0, shard_numel_ = 0;
  bool replicated_ = false;
};

}  // namespace mantissa
