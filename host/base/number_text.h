// Numbers as text: exactly, for programs; rounded and grouped, for people.
#pragma once
#include <cstdint>
#include <string>

namespace mantissa {

/// The shortest JSON that reads back to the same double, always with a point or an exponent; JSON has no NaN:
/// non-finite numbers are the strings "nan", "inf" and "-inf".
std::string json_number(double value);

/// With so many digits after the point; nan, inf and -inf as words.
std::string fixed_text(double value, int digits);

/// With so many significant digits: "0.0005321", "1.23e-09".
std::string short_text(double value, int digits);

/// "1,234,567"
std::string grouped(int64_t value);
/// Rounded to an integer, grouped.
std::string grouped(double value);

/// "45 s", "2 min 05 s", "1 h 02 min"
std::string duration_text(double seconds);

}  // namespace mantissa
