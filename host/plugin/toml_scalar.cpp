#include "plugin/toml_scalar.h"

#include <charconv>
#include <limits>
#include <system_error>

namespace mantissa {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool skip_digits(std::string_view& text) {
  const size_t size = text.size();
  while (!text.empty() && is_digit(text.front())) text.remove_prefix(1);
  return text.size() < size;
}

bool skip(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

// digits, without a leading zero
bool skip_whole_number(std::string_view& text) {
  const std::string_view start = text;
  return skip_digits(text) && (start.front() != '0' || start.size() - text.size() == 1);
}

bool is_number(std::string_view text, bool with_fraction) {
  skip(text, "+-");
  if (!skip_whole_number(text)) return false;
  if (with_fraction) {
    if (skip(text, ".") && !skip_digits(text)) return false;
    if (skip(text, "eE")) {
      skip(text, "+-");
      if (!skip_digits(text)) return false;
    }
  }
  return text.empty();
}

template <class T>
std::optional<T> convert(std::string_view text) {
  skip(text, "+");  // std::from_chars knows no plus
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

void append_utf8(std::string& text, uint32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xc0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xe0 | (code >> 12));
    tail(6), tail(0);
  } else {
    text += static_cast<char>(0xf0 | (code >> 18));
    tail(12), tail(6), tail(0);
  }
}

bool append_code_point(std::string& text, std::string_view& rest, size_t digits) {
  if (rest.size() < digits) return false;
  uint32_t code = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + digits, code, 16);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (error != std::errc() || end != rest.data() + digits || code > 0x10ffff || surrogate) return false;
  append_utf8(text, code);
  rest.remove_prefix(digits);
  return true;
}

bool append_escape(std::string& text, std::string_view& rest) {
  if (rest.empty()) return false;
  const char kind = rest.front();
  rest.remove_prefix(1);
  switch (kind) {
    case '"': text += '"'; return true;
    case '\\': text += '\\'; return true;
    case 'b': text += '\b'; return true;
    case 't': text += '\t'; return true;
    case 'n': text += '\n'; return true;
    case 'f': text += '\f'; return true;
    case 'r': text += '\r'; return true;
    case 'u': return append_code_point(text, rest, 4);
    case 'U': return append_code_point(text, rest, 8);
    default: return false;
  }
}

}  // namespace

std::optional<bool> parse_toml_bool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return {};
}

std::optional<int64_t> parse_toml_int(std::string_view text) {
  return is_number(text, false) ? convert<int64_t>(text) : std::nullopt;
}

std::optional<double> parse_toml_float(std::string_view text) {
  if (text == "inf" || text == "+inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text == "nan" || text == "+nan" || text == "-nan") return std::numeric_limits<double>::quiet_NaN();
  return is_number(text, true) ? convert<double>(text) : std::nullopt;
}

std::optional<std::string> parse_toml_string(std::string_view text) {
  if (text.size() < 2 || text.front() != text.back() || (text.front() != '"' && text.front() != '\'')) return {};
  const char quote = text.front();
  std::string_view rest = text.substr(1, text.size() - 2);
  std::string value;
  while (!rest.empty()) {
    const char c = rest.front();
    rest.remove_prefix(1);
    if (c == quote || (static_cast<unsigned char>(c) < 0x20 && c != '\t')) return {};
    if (c != '\\' || quote == '\'') {
      value += c;
    } else if (!append_escape(value, rest)) {
      return {};
    }
  }
  return value;
}

}  // namespace mantissa
