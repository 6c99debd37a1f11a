#include "config/toml_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace mantissa {
namespace {

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

std::string escaped(unsigned char c) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\t': return "\\t";
    case '\n': return "\\n";
    case '\f': return "\\f";
    case '\r': return "\\r";
    default: break;
  }
  if (c >= 0x20 && c != 0x7F) return std::string(1, static_cast<char>(c));
  std::array<char, 8> hex{};
  std::snprintf(hex.data(), hex.size(), "\\u%04X", c);
  return hex.data();
}

}  // namespace

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) result += escaped(static_cast<unsigned char>(c));
  result += '"';
  return result;
}

std::string toml_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  std::string result(digits.data(), end);
  const size_t exponent = result.find('e');
  if (exponent == std::string::npos) return result.find('.') == std::string::npos ? result + ".0" : result;
  // to_chars writes 1e-08 and 1e+20; people write 1e-8 and 1e20
  if (result[exponent + 2] == '0') result.erase(exponent + 2, 1);
  if (result[exponent + 1] == '+') result.erase(exponent + 1, 1);
  return result;
}

std::string toml_bool(bool value) { return value ? "true" : "false"; }

std::string toml_key(std::string_view part) {
  const bool bare = !part.empty() && std::all_of(part.begin(), part.end(), is_bare);
  return bare ? std::string(part) : toml_string(part);
}

}  // namespace mantissa
