// Writes a file aside and puts it in place by rename, so that a reader finds the old file or the whole new one, even
// after a crash or with a full disk.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/file_descriptor.h"

namespace mantissa {

/// Every function throws std::system_error. Without `commit` the target stays as it was and nothing is left behind.
class AsideFile {
 public:
  explicit AsideFile(std::filesystem::path target) : target_(std::move(target)), temporary_(aside(target_)) {
    file_ = FileDescriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file_.is_open()) throw_errno();
  }
  AsideFile(const AsideFile&) = delete;
  AsideFile& operator=(const AsideFile&) = delete;
  ~AsideFile() {
    if (file_.is_open()) ::unlink(temporary_.c_str());
  }

  void write(const void* data, size_t size) {
    const char* from = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(file_.get(), from, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw_errno();
      from += written;
      size -= static_cast<size_t>(written);
    }
  }

  /// On the disk, and in place of the target.
  void commit() {
    if (::fsync(file_.get()) != 0) throw_errno();
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) throw_errno();
    file_.reset();
    sync_folder();
  }

 private:
  // In the same folder, as rename does not cross file systems; with the pid, as two programs may write one target.
  static std::filesystem::path aside(const std::filesystem::path& target) {
    std::string name = ".";
    name.append(target.filename().string()).append(".").append(std::to_string(::getpid())).append(".tmp");
    return target.parent_path() / name;
  }
  [[noreturn]] static void throw_errno() { throw std::system_error(errno, std::generic_category()); }

  // The rename itself survives a power cut only once the folder is synced; a file system that cannot is no error.
  void sync_folder() const {
    const std::filesystem::path folder = target_.has_parent_path() ? target_.parent_path() : ".";
    const FileDescriptor handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (handle.is_open()) ::fsync(handle.get());
  }

  std::filesystem::path target_, temporary_;
  FileDescriptor file_;
};

}  // namespace mantissa
