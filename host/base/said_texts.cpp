#include "base/said_texts.h"

#include <sys/mman.h>

#include <cerrno>
#include <functional>
#include <new>
#include <system_error>

namespace mantissa {

SaidTexts::SaidTexts() {
  void* memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  table_ = new (memory) Table{};
}

SaidTexts::~SaidTexts() { ::munmap(table_, sizeof(Table)); }

bool SaidTexts::is_new(std::string_view text) {
  const uint64_t mine = std::hash<std::string_view>()(text) | 1;
  for (std::atomic<uint64_t>& entry : *table_) {
    uint64_t found = 0;
    if (entry.compare_exchange_strong(found, mine)) return true;
    if (found == mine) return false;
  }
  return true;
}

}  // namespace mantissa
