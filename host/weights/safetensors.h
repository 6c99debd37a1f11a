// Tensors in and out of safetensors files, the format that PyTorch users exchange weights in.
#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "weights/safetensors_header.h"

namespace mantissa {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Writes all tensors, in any order, memory layout and on any device. The same tensors give the same bytes, those of
/// Python's library. The file appears whole: on an error an older one stays as it was and nothing is left behind.
/// Throws CheckpointError: cannot be written, two tensors of one name, a dtype that the format does not have.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// A file that was checked as a whole when it was opened, mapped into memory: no tensor is read before it is asked for.
/// Every error is a CheckpointError that names the file.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return parsed_.header.metadata; }
  /// In the order of the file.
  const std::vector<SafetensorsEntry>& entries() const { return parsed_.header.entries; }
  /// Null if there is none.
  const SafetensorsEntry* find(const std::string& name) const;
  at::ScalarType dtype(const SafetensorsEntry& entry) const;
  /// A copy on the CPU, contiguous. Throws if there is none.
  at::Tensor tensor(const std::string& name) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  ParsedSafetensors parsed_;
};

}  // namespace mantissa
