// What is refused before the TOML parser sees it: files that it would die on, and files that are no text.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace mantissa {

inline constexpr size_t kLongestConfig = 1'000'000;  ///< bytes
inline constexpr int kDeepestKey = 64;               ///< the parser's recursion has no limit of its own for dotted keys

/// The text of `file`. Throws ConfigError with one line if it cannot be read or must not reach the parser: too long,
/// zero bytes, a byte order mark, keys or arrays nested deeper than kDeepestKey.
std::string read_vetted(const std::filesystem::path& file);

/// Whether keys and arrays of this TOML text are nested at most kDeepestKey deep.
bool shallow_enough(std::string_view text);

}  // namespace mantissa
