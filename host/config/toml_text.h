// Values in TOML syntax: for `mantissa config show`, for the merged config of a run and inside messages.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace mantissa {

/// `text` as a basic string in quotes, everything escaped that must be.
std::string toml_string(std::string_view text);

/// The shortest float that reads back to the same double: 300.0, 0.1, 1e-8, inf, nan.
std::string toml_float(double value);

std::string toml_bool(bool value);

/// One part of a dotted key: bare where TOML allows it, else in quotes.
std::string toml_key(std::string_view part);

}  // namespace mantissa
