#include "comm/buffer_pool.h"

#include <algorithm>
#include <mutex>
#include <new>

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

namespace mantissa {
namespace {

constexpr size_t kKept = 4;       // free blocks: two gathered units, a gradient and its parts
constexpr size_t kPage = 4096;

}  // namespace

struct BufferPool::FreeList {
  ~FreeList() {
    for (const auto& [memory, size] : blocks) munmap(memory, size);
  }
  std::mutex mutex;  // a tensor may be released on a thread of the communication library
  std::vector<std::pair<void*, size_t>> blocks;
};

// What a DataPtr owns.
struct BufferPool::Block {
  void* memory;
  size_t size;
  std::shared_ptr<FreeList> home;

  static void release(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    const std::lock_guard lock(block->home->mutex);
    auto& blocks = block->home->blocks;
    blocks.emplace_back(block->memory, block->size);
    if (blocks.size() <= kKept) return;
    const auto smallest = std::min_element(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    munmap(smallest->first, smallest->second);
    blocks.erase(smallest);
  }
};

BufferPool::BufferPool() : free_(std::make_shared<FreeList>()) {}

at::DataPtr BufferPool::allocate(size_t bytes) {
  const size_t wanted = std::max((bytes + kPage - 1) / kPage * kPage, kPage);
  std::pair<void*, size_t> found{nullptr, wanted};
  {
    const std::lock_guard lock(free_->mutex);
    auto best = free_->blocks.end();
    for (auto block = free_->blocks.begin(); block != free_->blocks.end(); ++block) {
      const bool fits = block->second >= wanted && block->second <= 2 * wanted;
      if (fits && (best == free_->blocks.end() || block->second < best->second)) best = block;
    }
    if (best != free_->blocks.end()) {
      found = *best;
      free_->blocks.erase(best);
    }
  }
  if (found.first == nullptr) {
    found.first = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found.first == MAP_FAILED) throw std::bad_alloc();
  }
  return {found.first, new Block{found.first, found.second, free_}, &Block::release, at::Device(at::kCPU)};
}

at::Tensor BufferPool::tensor(int64_t numel, at::ScalarType dtype) {
  auto memory = std::make_shared<at::DataPtr>(allocate(static_cast<size_t>(numel) * c10::elementSize(dtype)));
  return at::from_blob(memory->get(), {numel}, [memory](void*) { memory->clear(); }, at::TensorOptions().dtype(dtype));
}

}  // namespace mantissa
