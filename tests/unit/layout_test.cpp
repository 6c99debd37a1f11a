#include <gtest/gtest.h>

#include "fsdp/layout.h"

namespace mantissa {
namespace {

TEST(FlatLayout, EveryElement_LiesOnExactlyOneRank) {
  for (const int world_size : {1, 2, 3, 4, 5, 7, 8}) {
    for (const auto& numels : std::vector<std::vector<int64_t>>{
             {1}, {0}, {0, 3, 0}, {17, 1, 16, 5}, {1000, 7}, {1, 1, 1, 1, 1, 1, 1, 1, 1}}) {
      const FlatLayout layout(numels, world_size, false);
      EXPECT_EQ(layout.padded(), layout.shard_numel() * world_size);
      std::vector<std::vector<int>> seen;
      for (int64_t numel : numels) seen.emplace_back(numel, 0);
      for (int rank = 0; rank < world_size; ++rank) {
        int64_t end = 0;
        for (const Piece& piece : layout.pieces(rank)) {
          EXPECT_GE(piece.shard_offset, end) << "pieces overlap";
          end = piece.shard_offset + piece.numel;
          EXPECT_LE(end, layout.shard_numel());
          EXPECT_EQ(rank * layout.shard_numel() + piece.shard_offset,
                    layout.offset(piece.parameter) + piece.parameter_offset);
          for (int64_t i = 0; i < piece.numel; ++i)
            ++seen[piece.parameter][static_cast<size_t>(piece.parameter_offset + i)];
        }
      }
      for (const auto& counts : seen) {
        for (int count : counts) EXPECT_EQ(count, 1);
      }
    }
  }
}

TEST(FlatLayout, Replicated_EveryRankHoldsAll) {
  const FlatLayout layout({5, 20}, 3, true);
  EXPECT_EQ(layout.shard_numel(), layout.padded());
  for (int rank = 0; rank < 3; ++rank) {
    const auto pieces = layout.pieces(rank);
    ASSERT_EQ(pieces.size(), 2u);
    EXPECT_EQ(pieces[1].numel, 20);
    EXPECT_EQ(pieces[1].shard_offset, layout.offset(1));
  }
}

TEST(FlatLayout, FewerElementsThanRanks_SomeRanksHoldNothing) {
  const FlatLayout layout({2}, 8, false);
  EXPECT_EQ(layout.pieces(0).size(), 1u);
  for (int rank = 1; rank < 8; ++rank) EXPECT_TRUE(layout.pieces(rank).empty());
}

}  // namespace
}  // namespace mantissa
