#include <gtest/gtest.h>

#include <ATen/ops/empty.h>

#include "fsdp/block_allocator.h"

namespace mantissa {
namespace {

constexpr size_t kMegabyte = 1 << 20;

TEST(BlockAllocator, FreedBlock_ServesTheNextOfItsSize) {
  BlockAllocator& allocator = BlockAllocator::install();
  const size_t before = allocator.used_bytes();
  void* first = nullptr;
  {
    const c10::DataPtr block = allocator.allocate(5 * kMegabyte);
    first = block.get();
    EXPECT_EQ(allocator.used_bytes(), before + 5 * kMegabyte);
  }
  EXPECT_EQ(allocator.used_bytes(), before);
  EXPECT_EQ(allocator.kept_bytes(), 5 * kMegabyte);
  const c10::DataPtr again = allocator.allocate(5 * kMegabyte - 100);
  EXPECT_EQ(again.get(), first);
  allocator.trim();
  EXPECT_EQ(allocator.kept_bytes(), 0u);
}

TEST(BlockAllocator, ManySizes_NeverHoldMuchMoreThanWasInUse) {
  BlockAllocator& allocator = BlockAllocator::install();
  allocator.trim();
  for (size_t i = 0; i < 200; ++i) {
    const c10::DataPtr block = allocator.allocate(kMegabyte + i * 64 * 1024);
    EXPECT_LE(allocator.used_bytes() + allocator.kept_bytes(), (kMegabyte + i * 64 * 1024) / 10 * 11 + 64 * 1024);
  }
  allocator.trim();
}

TEST(BlockAllocator, TensorsOfAnySize_WorkWithIt) {
  BlockAllocator::install();
  for (const int64_t numel : {0, 1, 1000, 70000, 3000000}) {
    at::Tensor tensor = at::empty({numel}, at::kFloat);
    if (numel > 0) tensor.data_ptr<float>()[numel - 1] = 1;
    tensor.resize_({numel + 100000});
  }
}

}  // namespace
}  // namespace mantissa
