// A text file that grows by whole lines, each visible to readers at once (metrics.jsonl, events.jsonl).
#pragma once
#include <filesystem>
#include <string>

#include "base/file_descriptor.h"

namespace mantissa {

class LineFile {
 public:
  /// Appends to what is there. Throws Error if the file cannot be opened.
  explicit LineFile(std::filesystem::path path);
  /// `line` without its end. One write, so that a reader never finds half a line. Throws Error, say for a full disk,
  /// and if the file is no longer where it was: what is written now would be lost.
  void append(std::string line);

 private:
  void check_still_there() const;

  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace mantissa
