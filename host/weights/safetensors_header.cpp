#include "weights/safetensors_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace mantissa {
namespace {

using Json = nlohmann::json;  // sorted: with ordered_json, a file of a million names would take for ever
using OrderedJson = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr size_t kLengthSize = 8;
constexpr uint64_t kLargestHeader = 100'000'000;  // the limit of the Rust and Python library
constexpr size_t kMostDimensions = 64;            // of torch's kernels
constexpr const char* kMetadataKey = "__metadata__";

struct Dtype {
  std::string_view name;
  uint64_t item_size;
};

// In the order in which a file holds them.
constexpr std::array kDtypes = {
    Dtype{"U64", 8},     Dtype{"I64", 8},     Dtype{"F64", 8}, Dtype{"F32", 4}, Dtype{"U32", 4},
    Dtype{"I32", 4},     Dtype{"BF16", 2},    Dtype{"F16", 2}, Dtype{"U16", 2}, Dtype{"I16", 2},
    Dtype{"F8_E4M3", 1}, Dtype{"F8_E5M2", 1}, Dtype{"I8", 1},  Dtype{"U8", 1},  Dtype{"BOOL", 1},
};

auto find_dtype(std::string_view name) {
  return std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& dtype) { return dtype.name == name; });
}

[[noreturn]] void malformed(const std::string& what) { throw MalformedSafetensors(what); }

[[noreturn]] void malformed_tensor(const std::string& name, const std::string& what) {
  malformed("tensor \"" + name + "\": " + what);
}

uint64_t header_size(std::span<const uint8_t> file) {
  if (file.size() < kLengthSize) {
    malformed("the file has " + std::to_string(file.size()) + " bytes; need at least 8 for the size of its header");
  }
  uint64_t size = 0;
  std::memcpy(&size, file.data(), kLengthSize);
  if (size > kLargestHeader) {
    malformed("its header should have " + std::to_string(size) + " bytes; need at most " +
              std::to_string(kLargestHeader));
  }
  if (size > file.size() - kLengthSize) {
    malformed("its header should have " + std::to_string(size) + " bytes, but only " +
              std::to_string(file.size() - kLengthSize) + " follow: the file is cut short or not safetensors");
  }
  return size;
}

// nlohmann::json silently takes the last of two equal keys; a tensor that is there twice must not pass.
class DuplicateKeys {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > 3) malformed("the JSON of its header is nested too deep");
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key && !keys_.back().insert(parsed.get<std::string>()).second) {
      malformed("\"" + parsed.get<std::string>() + "\" is in its header twice");
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;
};

Json parse_json(std::string_view text) {
  try {
    Json json = Json::parse(text, [keys = DuplicateKeys()](int depth, Json::parse_event_t event, Json& parsed) mutable {
      return keys(depth, event, parsed);
    });
    if (!json.is_object()) malformed("its header is no JSON object");
    return json;
  } catch (const Json::exception& error) {
    malformed(std::string("its header is no valid JSON: ") + error.what());
  }
}

std::map<std::string, std::string> read_metadata(const Json& json) {
  std::map<std::string, std::string> metadata;
  if (!json.is_object()) malformed("its __metadata__ is no object of strings");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) malformed("its __metadata__ has a value that is no string: \"" + key + "\"");
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

const Json& member(const std::string& name, const Json& tensor, const char* key) {
  const auto found = tensor.find(key);
  if (found == tensor.end()) malformed_tensor(name, "no " + std::string(key));
  return *found;
}

std::vector<uint64_t> read_counts(const std::string& name, const Json& tensor, const char* key) {
  const Json& list = member(name, tensor, key);
  const auto is_count = [](const Json& value) { return value.is_number_unsigned(); };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_count)) {
    malformed_tensor(name, std::string(key) + " is " + list.dump().substr(0, 80) + "; need a list of integers from 0");
  }
  return list.get<std::vector<uint64_t>>();
}

std::string read_dtype(const std::string& name, const Json& tensor) {
  const Json& dtype = member(name, tensor, "dtype");
  if (!dtype.is_string()) malformed_tensor(name, "dtype is no string");
  if (safetensors_item_size(dtype.get<std::string>()) == 0) {
    malformed_tensor(name, "dtype " + dtype.dump().substr(0, 80) +
                               " is not known; need F64, F32, F16, BF16, an integer type or BOOL");
  }
  return dtype.get<std::string>();
}

std::optional<uint64_t> product(uint64_t a, uint64_t b) {
  constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (b != 0 && a > kLargest / b) return {};
  return a * b;
}

// Bytes of a tensor. The product without its zeros must not overflow either: torch computes strides from it.
uint64_t byte_size(const std::string& name, const std::string& dtype, const std::vector<uint64_t>& shape) {
  std::optional<uint64_t> size = safetensors_item_size(dtype);
  bool is_empty = false;
  for (const uint64_t extent : shape) {
    is_empty |= extent == 0;
    if (size) size = product(*size, std::max<uint64_t>(extent, 1));
  }
  if (!size || shape.size() > kMostDimensions) malformed_tensor(name, "its shape is too large");
  return is_empty ? 0 : *size;
}

SafetensorsEntry read_entry(const std::string& name, const Json& tensor, uint64_t data_size) {
  if (!tensor.is_object()) malformed_tensor(name, "is no object");
  SafetensorsEntry entry{.name = name, .dtype = read_dtype(name, tensor), .shape = {}};
  const std::vector<uint64_t> shape = read_counts(name, tensor, "shape");
  const uint64_t size = byte_size(name, entry.dtype, shape);
  const std::vector<uint64_t> offsets = read_counts(name, tensor, "data_offsets");
  if (offsets.size() != 2)
    malformed_tensor(name, "data_offsets has " + std::to_string(offsets.size()) + " numbers; need 2");
  entry.begin = offsets[0];
  entry.end = offsets[1];
  if (entry.begin > entry.end || entry.end > data_size) {
    malformed_tensor(name, "its data are at " + std::to_string(entry.begin) + " to " + std::to_string(entry.end) +
                               "; the file has " + std::to_string(data_size) + " bytes of data");
  }
  if (entry.end - entry.begin != size) {
    malformed_tensor(name, "has " + std::to_string(entry.end - entry.begin) +
                               " bytes of data; its dtype and shape need " + std::to_string(size));
  }
  entry.shape.assign(shape.begin(), shape.end());
  return entry;
}

// No byte may belong to two tensors or to none: a file with hidden content is refused by the other libraries as well.
void check_coverage(std::vector<SafetensorsEntry>& entries, uint64_t data_size) {
  std::stable_sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < covered) malformed_tensor(entry.name, "its data overlap another tensor's");
    if (entry.begin > covered) malformed_tensor(entry.name, "there is a hole before its data");
    covered = entry.end;
  }
  if (covered != data_size) {
    malformed("its tensors have " + std::to_string(covered) + " bytes together, the file has " +
              std::to_string(data_size) + " bytes of data");
  }
}

OrderedJson to_json(const SafetensorsEntry& entry) {
  return {{"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
}

}  // namespace

uint64_t safetensors_item_size(std::string_view dtype) {
  const auto found = find_dtype(dtype);
  return found == kDtypes.end() ? 0 : found->item_size;
}

bool comes_before(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  const auto rank_a = find_dtype(a.dtype), rank_b = find_dtype(b.dtype);
  return rank_a != rank_b ? rank_a < rank_b : a.name < b.name;
}

ParsedSafetensors parse_safetensors(std::span<const uint8_t> file) {
  const uint64_t size = header_size(file);
  const std::span<const uint8_t> text = file.subspan(kLengthSize, size);
  ParsedSafetensors parsed{{}, file.subspan(kLengthSize + size)};
  const Json json = parse_json({reinterpret_cast<const char*>(text.data()), text.size()});
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      parsed.header.metadata = read_metadata(value);
    } else {
      parsed.header.entries.push_back(read_entry(name, value, parsed.data.size()));
    }
  }
  check_coverage(parsed.header.entries, parsed.data.size());
  return parsed;
}

std::string safetensors_prologue(const SafetensorsHeader& header) {
  OrderedJson json = OrderedJson::object();
  if (!header.metadata.empty()) json[kMetadataKey] = header.metadata;
  for (const SafetensorsEntry& entry : header.entries) json[entry.name] = to_json(entry);
  std::string text;
  try {
    text = json.dump();
  } catch (const Json::exception& error) {
    malformed(std::string("a name or value is no UTF-8: ") + error.what());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::string prologue(kLengthSize, '\0');
  std::memcpy(prologue.data(), &size, kLengthSize);
  return prologue + text;
}

}  // namespace mantissa
