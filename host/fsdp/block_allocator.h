// The CPU memory of large tensors: mapped blocks that are kept for the next tensor of their size.
//
// Sharding lives from memory that comes and goes: gathered parameters, gradients on their way, activations. glibc's
// malloc fragments under it (its mmap threshold follows what was freed last, and an aligned block does not fit into its
// own hole): 67 million parameters in units of 6.7 MB then grow a rank by 640 MB where 100 are in use.
#pragma once
#include <c10/core/Allocator.h>

#include <cstddef>
#include <deque>
#include <list>
#include <mutex>
#include <unordered_map>

namespace mantissa {

class BlockAllocator final : public c10::Allocator {
 public:
  /// Blocks from this size on are mapped, smaller ones are malloc's, bytes.
  static constexpr size_t kSmallestBlock = 256 * 1024;

  /// Makes it LibTorch's CPU allocator for the rest of the process, if it is not yet. Tensors that exist keep their
  /// memory.
  static BlockAllocator& install();

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override;

  /// Gives all kept blocks back to the system.
  void trim();

  size_t used_bytes() const;
  size_t kept_bytes() const;

 private:
  BlockAllocator() = default;
  static void release(void* memory);

  void* take(size_t size);
  void give(void* memory);
  void evict_down_to(size_t kept);

  struct Kept {
    void* memory;
    size_t size;
  };
  using KeptList = std::list<Kept>;
  mutable std::mutex mutex_;  // autograd and Gloo free on threads of their own
  std::unordered_map<void*, size_t> used_;
  KeptList kept_;                                                            // the one that was freed last at the front
  std::unordered_map<size_t, std::deque<KeptList::iterator>> kept_of_size_;  // the one that was freed last at the back
  size_t used_bytes_ = 0, kept_bytes_ = 0, peak_used_bytes_ = 0;
};

}  // namespace mantissa
