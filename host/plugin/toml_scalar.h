// Single TOML values inside option specs ("true", "16", "1e-3", "\"float32\""). Files are read by config/, with a
// parser.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mantissa {

/// Each returns nothing unless all of `text` is one value of that type. Numbers are decimal and without underscores.
std::optional<bool> parse_toml_bool(std::string_view text);
std::optional<int64_t> parse_toml_int(std::string_view text);
std::optional<double> parse_toml_float(std::string_view text);        ///< integers, inf and nan too
std::optional<std::string> parse_toml_string(std::string_view text);  ///< basic or literal, on one line

}  // namespace mantissa
