// Memory for what comes and goes with every unit: gathered parameters, gradients on their way.
//
// Blocks are mapped by themselves and a few are kept for the next unit. From malloc they would fragment the heap: glibc moves
// its mmap threshold up to what was freed last, and 67 million parameters in units of 6.7 MB then cost 640 MB, not 100.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace mantissa {

class BufferPool {
 public:
  BufferPool();

  /// At least `bytes`, not initialised, aligned to a page. Goes back to the pool when it is released; may outlive the pool.
  at::DataPtr allocate(size_t bytes);

  /// [numel] of `dtype`, not initialised.
  at::Tensor tensor(int64_t numel, at::ScalarType dtype);

 private:
  struct Block;
  struct FreeList;
  std::shared_ptr<FreeList> free_;
};

}  // namespace mantissa
