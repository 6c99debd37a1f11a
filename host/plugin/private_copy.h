// The vetted bytes of a plugin as a file that nobody else can change. Loading the original instead would run bytes that
// were never judged if it is overwritten meanwhile, end a run by SIGBUS if it is cut, and hand back the old library if
// it was rebuilt under the same name.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/file_descriptor.h"

namespace mantissa {

class PrivateCopy {
 public:
  /// A sealed file in memory, `name` for those who read /proc/self/maps. Throws std::system_error.
  static PrivateCopy in_memory(std::span<const std::byte> bytes, const std::string& name);
  /// A new read-only file in `folder` of which the name is removed with the copy. Throws std::system_error.
  static PrivateCopy in_folder(std::span<const std::byte> bytes, const std::filesystem::path& folder);
  /// In memory, or in the folder for temporary files where the system refuses that.
  static PrivateCopy of(std::span<const std::byte> bytes, const std::string& name);

  PrivateCopy(PrivateCopy&& other) noexcept;
  PrivateCopy& operator=(PrivateCopy&& other) noexcept;
  ~PrivateCopy();

  /// To load it from. Valid while this copy lives.
  const std::filesystem::path& path() const { return path_; }

  /// Keeps the copy for good: for a library that stays mapped. A later file with the same descriptor would be taken for
  /// it.
  void keep_open();

 private:
  PrivateCopy(FileDescriptor descriptor, std::filesystem::path path, bool named);

  FileDescriptor descriptor_;
  std::filesystem::path path_;
  bool named_ = false;  // path_ is a name in a folder
};

}  // namespace mantissa
