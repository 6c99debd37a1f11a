#include "plugin/private_copy.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

namespace mantissa {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

void write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot write a private copy");
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

}  // namespace

PrivateCopy::PrivateCopy(FileDescriptor descriptor, fs::path path, bool named)
    : descriptor_(std::move(descriptor)), path_(std::move(path)), named_(named) {}

PrivateCopy::PrivateCopy(PrivateCopy&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      path_(std::move(other.path_)),
      named_(std::exchange(other.named_, false)) {}

PrivateCopy& PrivateCopy::operator=(PrivateCopy&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(named_, other.named_);
  return *this;
}

PrivateCopy::~PrivateCopy() {
  if (named_) ::unlink(path_.c_str());
}

void PrivateCopy::keep_open() {
  static std::vector<FileDescriptor> kept;
  kept.push_back(std::move(descriptor_));
}

PrivateCopy PrivateCopy::in_memory(std::span<const std::byte> bytes, const std::string& name) {
  FileDescriptor file(::memfd_create(name.substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) fail("memfd_create");
  write_all(file.get(), bytes);
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
    fail("F_ADD_SEALS");
  fs::path path = "/proc/self/fd/" + std::to_string(file.get());
  return PrivateCopy(std::move(file), std::move(path), false);
}

PrivateCopy PrivateCopy::in_folder(std::span<const std::byte> bytes, const fs::path& folder) {
  std::string path = (fs::absolute(folder) / "mantissa-plugin-XXXXXX").string();
  FileDescriptor file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file.is_open()) fail("cannot create " + path);
  PrivateCopy copy(std::move(file), path, true);
  write_all(copy.descriptor_.get(), bytes);
  if (::fchmod(copy.descriptor_.get(), S_IRUSR | S_IXUSR) != 0) fail("fchmod " + path);
  return copy;
}

PrivateCopy PrivateCopy::of(std::span<const std::byte> bytes, const std::string& name) {
  try {
    return in_memory(bytes, name);
  } catch (const std::system_error&) {
    return in_folder(bytes, fs::temp_directory_path());
  }
}

}  // namespace mantissa
