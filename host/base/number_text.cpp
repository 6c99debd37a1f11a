#include "base/number_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace mantissa {
namespace {

std::string non_finite_text(double value) { return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"; }

// std::to_chars: unlike printf it knows no locale.
template <typename... Format>
std::string chars(double value, Format... format) {
  if (!std::isfinite(value)) return non_finite_text(value);
  std::array<char, 400> text;  // the largest double has 309 digits before the point
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value, format...);
  return {text.data(), result.ptr};
}

std::string two_digits(int64_t value) {
  const std::string text = std::to_string(value);
  return text.size() < 2 ? std::string("0").append(text) : text;
}

}  // namespace

std::string json_number(double value) {
  const std::string text = chars(value);
  if (!std::isfinite(value)) return "\"" + text + "\"";
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string fixed_text(double value, int digits) { return chars(value, std::chars_format::fixed, digits); }

std::string short_text(double value, int digits) { return chars(value, std::chars_format::general, digits); }

std::string grouped(int64_t value) {
  std::string text = std::to_string(value);
  const size_t first_digit = value < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first_digit + 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string grouped(double value) {
  return std::abs(value) < 1e15 ? grouped(static_cast<int64_t>(std::llround(value))) : short_text(value, 4);
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  if (total < 60) return std::to_string(total) + " s";
  if (total < 3600) return std::to_string(total / 60) + " min " + two_digits(total % 60) + " s";
  return std::to_string(total / 3600) + " h " + two_digits(total % 3600 / 60) + " min";
}

}  // namespace mantissa
