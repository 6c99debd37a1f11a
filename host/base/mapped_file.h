// A regular file mapped read-only into memory. The bytes are the file's: a file that another program shortens while it
// is mapped ends this process with SIGBUS, so input files are replaced by rename, never written in place.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "base/file_descriptor.h"

namespace mantissa {

class MappedFile {
 public:
  /// Throws std::system_error whose code says why: no such file, is a folder, not a regular file, permission denied.
  explicit MappedFile(const std::filesystem::path& path) {
    // O_NONBLOCK: opening a named pipe must not wait for somebody to write to it.
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.is_open()) throw_errno(errno);
    struct stat status{};
    if (::fstat(file.get(), &status) != 0) throw_errno(errno);
    if (S_ISDIR(status.st_mode)) throw_errno(EISDIR);
    if (!S_ISREG(status.st_mode)) throw_errno(EINVAL);
    size_ = static_cast<size_t>(status.st_size);
    if (size_ == 0) return;  // mmap refuses an empty range
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (address == MAP_FAILED) throw_errno(errno);
    data_ = static_cast<const uint8_t*>(address);
  }
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedFile() {
    if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
  }

  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  [[noreturn]] static void throw_errno(int code) { throw std::system_error(code, std::generic_category()); }

  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mantissa
