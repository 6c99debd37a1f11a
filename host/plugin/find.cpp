#include "plugin/find.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/nearest.h"

namespace mantissa {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "libmantissa-";
constexpr std::string_view kSuffix = ".so";

std::string file_name(std::string_view name) { return std::string(kPrefix).append(name).append(kSuffix); }

// A link that points nowhere counts: what is found is final, and refused later with its reason.
bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(file, ignored));
}

std::optional<std::string> plugin_name(const fs::path& file) {
  const std::string text = file.filename().string();
  const std::string_view name = text;
  if (name.size() <= kPrefix.size() + kSuffix.size() || !name.starts_with(kPrefix) || !name.ends_with(kSuffix))
    return {};
  return std::string(name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()));
}

[[noreturn]] void refuse_name(std::string_view name, const SearchPath& search) {
  std::string message = "plugin \"" + std::string(name) + "\": no " + file_name(name) + " in ";
  for (size_t i = 0; i < search.folders.size(); ++i) message += (i == 0 ? "" : ", ") + search.folders[i].string();
  if (search.folders.empty()) message += "any folder, as none is searched";
  std::vector<std::string> names;
  for (const FoundPlugin& plugin : list_plugins(search)) names.push_back(plugin.name);
  if (const auto near = nearest(name, names)) {
    message += "; did you mean \"" + *near + "\"?";
  } else {
    message +=
        "; name one that `mantissa plugin list` shows, add its folder to MANTISSA_PLUGIN_PATH, or give a path with a /";
  }
  throw PluginRefused("not-found", message);
}

}  // namespace

SearchPath from_environment(const fs::path& executable) {
  SearchPath search;
  const char* const variable = std::getenv("MANTISSA_PLUGIN_PATH");
  std::string_view rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    if (!folder.empty()) search.folders.push_back(fs::absolute(folder).lexically_normal());
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
  }
  const fs::path base = executable.parent_path().parent_path();
  search.folders.push_back(base / "lib/mantissa/plugins");
  search.folders.push_back(base / "plugins");
  return search;
}

fs::path find_plugin(std::string_view name_or_path, const SearchPath& search) {
  if (name_or_path.find('/') != std::string_view::npos) {
    fs::path file = fs::absolute(name_or_path);
    if (is_there(file)) return file;
    throw PluginRefused("not-found", "plugin \"" + std::string(name_or_path) + "\": no such file; check the path");
  }
  for (const fs::path& folder : search.folders) {
    fs::path file = folder / file_name(name_or_path);
    if (is_there(file)) return file;
  }
  refuse_name(name_or_path, search);
}

std::vector<FoundPlugin> list_plugins(const SearchPath& search) {
  std::map<std::string, fs::path> by_name;
  for (const fs::path& folder : search.folders) {
    std::error_code unreadable;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
      if (const auto name = plugin_name(entry.path())) by_name.try_emplace(*name, entry.path());
    }
  }
  std::vector<FoundPlugin> plugins;
  for (auto& [name, file] : by_name) plugins.push_back({name, file});
  return plugins;
}

}  // namespace mantissa
