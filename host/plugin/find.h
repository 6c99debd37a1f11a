// From the name of a plugin to its file. Nothing is opened here; vet.h judges what was found.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa {

/// Folders in which names are looked up, the first hit wins. Never the working directory, never LD_LIBRARY_PATH.
struct SearchPath {
  std::vector<std::filesystem::path> folders;  ///< absolute; they need not exist
};

struct FoundPlugin {
  std::string name;  ///< that `precision.plugin` may give
  std::filesystem::path file;
};

/// MANTISSA_PLUGIN_PATH (folders separated by ':'), then the installed and the build-tree folder of the program.
SearchPath from_environment(const std::filesystem::path& executable);

/// A name is looked up as libmantissa-<name>.so; what holds a '/' is a path and used as given.
/// Throws PluginRefused("not-found") that says where it looked and which name is nearest.
std::filesystem::path find_plugin(std::string_view name_or_path, const SearchPath& search);

/// What find_plugin would find, by name.
std::vector<FoundPlugin> list_plugins(const SearchPath& search);

}  // namespace mantissa
