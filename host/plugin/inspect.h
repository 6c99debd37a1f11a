// What a plugin says of itself, for people.
#pragma once
#include <filesystem>
#include <string>

#include "config/config.h"
#include "plugin/identity.h"

namespace mantissa {

struct PluginDescription {
  PluginIdentity identity;
  std::string clips_by;  ///< "norm", "value", "norm and value" or "nothing"
  std::string options;   ///< a table, one line an option; empty if there are none
};

/// Throws what is wrong with `file`, [precision.options] and [clip] of `config`: PluginRefused, or ConfigError for a
/// clip kind that the plugin does not understand. None of the plugin's slots is called.
void check_plugin(const std::filesystem::path& file, const Config& config);

/// Vets and loads `file` without creating a context. Throws PluginRefused.
PluginDescription inspect_plugin(const std::filesystem::path& file);

}  // namespace mantissa
