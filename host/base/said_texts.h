// Which texts were said already, by any of the processes that were forked from one.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace mantissa {

/// Hashes of texts in memory that forks share, so that what all ranks of a machine find alike is said once.
class SaidTexts {
 public:
  /// Throws std::system_error where there is no memory.
  SaidTexts();
  ~SaidTexts();
  SaidTexts(const SaidTexts&) = delete;

  /// True for one caller only. Any thread, any fork. Beyond kMost texts all are new: nothing is lost.
  bool is_new(std::string_view text);

 private:
  static constexpr size_t kMost = 1024;
  using Table = std::array<std::atomic<uint64_t>, kMost>;  // 0: free
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  Table* table_;
};

}  // namespace mantissa
