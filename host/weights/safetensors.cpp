#include "weights/safetensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>

#include "base/aside_file.h"
#include "base/error.h"

namespace mantissa {
namespace {

struct DtypeName {
  std::string_view name;
  at::ScalarType type;
};

constexpr std::array kDtypeNames = {
    DtypeName{"F64", at::ScalarType::Double},
    DtypeName{"F32", at::ScalarType::Float},
    DtypeName{"F16", at::ScalarType::Half},
    DtypeName{"BF16", at::ScalarType::BFloat16},
    DtypeName{"F8_E4M3", at::ScalarType::Float8_e4m3fn},
    DtypeName{"F8_E5M2", at::ScalarType::Float8_e5m2},
    DtypeName{"I64", at::ScalarType::Long},
    DtypeName{"I32", at::ScalarType::Int},
    DtypeName{"I16", at::ScalarType::Short},
    DtypeName{"I8", at::ScalarType::Char},
    DtypeName{"U64", at::ScalarType::UInt64},
    DtypeName{"U32", at::ScalarType::UInt32},
    DtypeName{"U16", at::ScalarType::UInt16},
    DtypeName{"U8", at::ScalarType::Byte},
    DtypeName{"BOOL", at::ScalarType::Bool},
};

[[noreturn]] void cannot_write(const std::filesystem::path& path, const std::string& why) {
  throw CheckpointError("cannot write " + path.string() + ": " + why);
}

std::string name_of(const std::filesystem::path& path, const NamedTensor& tensor) {
  const auto found = std::find_if(kDtypeNames.begin(), kDtypeNames.end(),
                                  [&](const DtypeName& dtype) { return dtype.type == tensor.tensor.scalar_type(); });
  if (found != kDtypeNames.end()) return std::string(found->name);
  cannot_write(path, "tensor \"" + tensor.name + "\" is of type " + at::toString(tensor.tensor.scalar_type()) +
                         ", which safetensors do not have; convert it first");
}

// A tensor on its way into a file, with the entry that describes it.
struct Outgoing {
  SafetensorsEntry entry;
  const at::Tensor* tensor;
};

std::vector<Outgoing> in_file_order(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<Outgoing> outgoing;
  for (const NamedTensor& tensor : tensors) {
    SafetensorsEntry entry{.name = tensor.name, .dtype = name_of(path, tensor), .shape = tensor.tensor.sizes().vec()};
    outgoing.push_back({std::move(entry), &tensor.tensor});
  }
  std::sort(outgoing.begin(), outgoing.end(),
            [](const Outgoing& a, const Outgoing& b) { return comes_before(a.entry, b.entry); });
  uint64_t end = 0;
  for (Outgoing& next : outgoing) {
    next.entry.begin = end;
    next.entry.end = end += next.tensor->nbytes();
  }
  return outgoing;
}

void check_names(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) cannot_write(path, "two tensors are called \"" + *twice + "\"");
  if (std::binary_search(names.begin(), names.end(), "__metadata__")) {
    cannot_write(path, "a tensor cannot be called \"__metadata__\"");
  }
}

std::string prologue_of(const std::filesystem::path& path, const std::vector<Outgoing>& outgoing,
                        const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header{{}, metadata};
  for (const Outgoing& next : outgoing) header.entries.push_back(next.entry);
  try {
    return safetensors_prologue(header);
  } catch (const MalformedSafetensors& error) {
    cannot_write(path, error.what());
  }
}

MappedFile map_weights(const std::filesystem::path& path) {
  try {
    return MappedFile(path);
  } catch (const std::system_error& error) {
    throw CheckpointError("cannot read " + path.string() + ": " + error.code().message());
  }
}

ParsedSafetensors parse_weights(const std::filesystem::path& path, const MappedFile& file) {
  try {
    return parse_safetensors(file.bytes());
  } catch (const MalformedSafetensors& error) {
    throw CheckpointError(path.string() + " is no usable safetensors file: " + error.what());
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  check_names(path, tensors);
  const std::vector<Outgoing> outgoing = in_file_order(path, tensors);
  const std::string prologue = prologue_of(path, outgoing, metadata);
  try {
    AsideFile file(path);
    file.write(prologue.data(), prologue.size());
    for (const Outgoing& next : outgoing) {
      const at::Tensor plain = next.tensor->detach().cpu().contiguous();  // one copy at a time, and only where needed
      file.write(plain.const_data_ptr(), plain.nbytes());
    }
    file.commit();
  } catch (const std::system_error& error) {  // the disk's fault, not the file's
    throw Error("cannot write " + path.string() + ": " + error.code().message() +
                "; need a folder that can be written to and has room");
  }
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(map_weights(path)), parsed_(parse_weights(path, file_)) {}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = std::find_if(entries().begin(), entries().end(),
                                  [&](const SafetensorsEntry& entry) { return entry.name == name; });
  return found == entries().end() ? nullptr : &*found;
}

at::ScalarType SafetensorsFile::dtype(const SafetensorsEntry& entry) const {
  const auto found = std::find_if(kDtypeNames.begin(), kDtypeNames.end(),
                                  [&](const DtypeName& dtype) { return dtype.name == entry.dtype; });
  return found->type;  // the parser let no other in
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const SafetensorsEntry* entry = find(name);
  if (!entry) throw CheckpointError(path_.string() + " has no tensor \"" + name + "\"");
  at::Tensor copy = at::empty(entry->shape, at::TensorOptions().dtype(dtype(*entry)));
  if (entry->end > entry->begin) {
    std::memcpy(copy.mutable_data_ptr(), parsed_.data.data() + entry->begin, entry->end - entry->begin);
  }
  return copy;
}

}  // namespace mantissa
