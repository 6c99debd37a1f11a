#include "fsdp/block_allocator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

namespace mantissa {
namespace {

constexpr size_t kGranule = 64 * 1024;  // sizes are rounded up to it, so that similar tensors share blocks
constexpr size_t kAlignment = 64;       // of small tensors, as in c10
constexpr uint8_t kPriority = 128;      // above c10's default allocator

size_t rounded(size_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

}  // namespace

BlockAllocator& BlockAllocator::install() {
  static BlockAllocator* instance = [] {
    auto* allocator = new BlockAllocator;  // never destroyed: tensors may be freed after main has returned
    c10::SetCPUAllocator(allocator, kPriority);
    return allocator;
  }();
  return *instance;
}

c10::DataPtr BlockAllocator::allocate(size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes >= kSmallestBlock) {
    void* block = take(rounded(bytes));
    return {block, block, &release, cpu};
  }
  void* small = nullptr;
  if (bytes > 0 && posix_memalign(&small, kAlignment, bytes) != 0) throw std::bad_alloc();
  return {small, small, &std::free, cpu};
}

void BlockAllocator::copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }

void BlockAllocator::release(void* memory) {
  if (memory != nullptr) install().give(memory);
}

void* BlockAllocator::take(size_t size) {
  const std::lock_guard lock(mutex_);
  void* memory = nullptr;
  if (auto& same_size = kept_of_size_[size]; !same_size.empty()) {
    memory = same_size.back()->memory;
    kept_bytes_ -= size;
    kept_.erase(same_size.back());
    same_size.pop_back();
  } else {
    // With what is in use, kept blocks never hold more than a tenth above what was once in use at the same time.
    const size_t bound = std::max(peak_used_bytes_, used_bytes_ + size) / 10 * 11;
    evict_down_to(bound > used_bytes_ + size ? bound - used_bytes_ - size : 0);
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      evict_down_to(0);
      memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (memory == MAP_FAILED) throw std::bad_alloc();
  }
  used_.emplace(memory, size);
  used_bytes_ += size;
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
  return memory;
}

void BlockAllocator::give(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(memory);
  if (found == used_.end()) {  // a small one, by raw_deallocate
    std::free(memory);
    return;
  }
  kept_.push_front({memory, found->second});
  kept_of_size_[found->second].push_back(kept_.begin());
  used_bytes_ -= found->second;
  kept_bytes_ += found->second;
  used_.erase(found);
}

void BlockAllocator::evict_down_to(size_t kept) {
  while (kept_bytes_ > kept) {
    const Kept oldest = kept_.back();
    munmap(oldest.memory, oldest.size);
    kept_bytes_ -= oldest.size;
    kept_of_size_[oldest.size].pop_front();
    kept_.pop_back();
  }
}

void BlockAllocator::trim() {
  const std::lock_guard lock(mutex_);
  evict_down_to(0);
  peak_used_bytes_ = used_bytes_;
}

size_t BlockAllocator::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

size_t BlockAllocator::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace mantissa
