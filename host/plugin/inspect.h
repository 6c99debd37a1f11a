// What a plugin says of itself, for people.
#pragma once
#include <filesystem>
#include <string>

#include "plugin/identity.h"

namespace mantissa {

struct PluginDescription {
  PluginIdentity identity;
  std::string clips_by;   ///< "norm", "value", "norm and value" or "nothing"
  std::string options;    ///< a table, one line an option; empty if there are none
};

/// Vets and loads `file` without creating a context. Throws PluginRefused.
PluginDescription inspect_plugin(const std::filesystem::path& file);

}  // namespace mantissa
