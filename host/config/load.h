// TOML text -> Config, strictly: every unknown key, wrong type and value out of range is reported, all of them at once.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"

namespace mantissa {

/// One `key = value` of a loaded config, as `mantissa config show` prints it.
struct Setting {
  std::string key;     ///< dotted, e.g. "train.batch"
  std::string value;   ///< in TOML syntax
  std::string origin;  ///< "file:line:column", "--set" or "default"
};

struct LoadedConfig {
  Config config;
  std::vector<Setting> settings;  ///< every key that has a value, in the order of the README's list
};

/// Reads `file`, applies `overrides` ("dotted.key=TOML value", the last one wins) and checks everything that can be
/// checked without ranks or plugins. Relative paths in the file are resolved against the file's folder, those of an
/// override against the working directory; run.dir stays as it is. Lines, columns and origins are those of the key.
/// Throws ConfigError with one line per problem; UsageError for an override that is not key=value.
LoadedConfig load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides = {});

/// The merged config as TOML that `load_config` reads back to the same values (paths made absolute).
std::string to_toml(const LoadedConfig& loaded);

}  // namespace mantissa
