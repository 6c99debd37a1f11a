// What a plugin says of itself, for people.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"
#include "plugin/identity.h"

namespace mantissa {

/// An option that a plugin declares, in words.
struct OptionDescription {
  std::string key;
  std::string type;           ///< "bool", "int", "float" or "string"
  std::string default_value;  ///< in TOML syntax
  std::string allowed;        ///< e.g. "1 to 10"; empty: any value of the type
  std::string help;
};

struct PluginDescription {
  PluginIdentity identity;
  std::string clips_by;  ///< "norm", "value", "norm and value" or "nothing"
  std::vector<OptionDescription> options;
};

/// Throws what is wrong with `file`, [precision.options] and [clip] of `config`: PluginRefused, or ConfigError for a
/// clip kind that the plugin does not understand. None of the plugin's slots is called.
void check_plugin(const std::filesystem::path& file, const Config& config);

/// Vets and loads `file` without creating a context. Throws PluginRefused.
PluginDescription inspect_plugin(const std::filesystem::path& file);

}  // namespace mantissa
