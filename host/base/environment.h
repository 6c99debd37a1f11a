// Environment variables, read where a setting enters the program.
#pragma once
#include <cstdlib>
#include <optional>
#include <string>

namespace mantissa {

/// The value of `name`; nothing if it is not set, or empty.
inline std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace mantissa
