// The header of a safetensors file: what tensors it holds and where. Format: https://github.com/huggingface/safetensors
//   8 bytes      N, the size of the header, little-endian
//   N bytes      JSON: {"__metadata__": {...}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//   the rest     the data, without holes; offsets count from its beginning
// No torch, so that hostile files are met by plain arithmetic alone.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;            ///< as in the file: "F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", ...
  std::vector<int64_t> shape;   ///< empty: a scalar
  uint64_t begin = 0, end = 0;  ///< bytes, from the beginning of the data
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their data
  std::map<std::string, std::string> metadata;
};

/// What is wrong with a file, without its name.
struct MalformedSafetensors : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Bytes of one element; 0 for a dtype that Mantissa does not know.
uint64_t safetensors_item_size(std::string_view dtype);

/// In this order a file holds its tensors: larger elements first (so that all are aligned), then by name. Python's
/// library orders them like this.
bool comes_before(const SafetensorsEntry& a, const SafetensorsEntry& b);

/// Checks everything: the entries of what it returns are known dtypes, fill the data without holes or overlaps, and
/// have the size that dtype and shape say. Throws MalformedSafetensors.
struct ParsedSafetensors {
  SafetensorsHeader header;
  std::span<const uint8_t> data;
};
ParsedSafetensors parse_safetensors(std::span<const uint8_t> file);

/// The first N + 8 bytes of a file, padded so that the data begin at a multiple of 8. Throws MalformedSafetensors for a
/// name that is no UTF-8.
std::string safetensors_prologue(const SafetensorsHeader& header);

}  // namespace mantissa
