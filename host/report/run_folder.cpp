#include "report/run_folder.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "base/aside_file.h"
#include "base/error.h"

namespace mantissa {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void cannot_create(const std::filesystem::path& path, const std::error_code& why) {
  throw UsageError("run.dir: cannot create " + path.string() + ": " + why.message() +
                   "; need a folder that this user may write to: set run.dir");
}

std::filesystem::path create_unique(const std::filesystem::path& parent, const std::string& time) {
  for (int count = 1;; ++count) {
    std::filesystem::path path = parent / time;
    if (count > 1) path.concat("-").concat(std::to_string(count));
    std::error_code error;
    if (std::filesystem::create_directory(path, error)) return path;
    if (error) cannot_create(path, error);  // that it exists is no error, but false
  }
}

Json to_json(const PluginUse& use) {
  const PluginIdentity& plugin = use.plugin;
  std::string abi = std::to_string(plugin.abi_major);
  abi.append(".").append(std::to_string(plugin.abi_minor));
  return {{"id", plugin.id},         {"version", plugin.version},    {"abi", abi},
          {"sha256", plugin.sha256}, {"file", plugin.file.string()}, {"from_step", use.from_step}};
}

}  // namespace

RunFolder::RunFolder(const std::filesystem::path& dir, std::string_view run_name, const WallClock& clock) {
  const std::filesystem::path parent = dir / run_name;
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error) cannot_create(parent, error);
  path_ = create_unique(parent, utc_folder_name(clock()));
}

void RunFolder::write_config(std::string_view toml) const { write("config.toml", toml); }

void RunFolder::write_plugins(const std::vector<PluginUse>& plugins) const {
  Json list = Json::array();
  for (const PluginUse& use : plugins) list.push_back(to_json(use));
  write("plugins.json", list.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void RunFolder::write(const char* name, std::string_view content) const {
  try {
    AsideFile file(path_ / name);
    file.write(content.data(), content.size());
    file.commit();
  } catch (const std::system_error& error) {
    throw Error("cannot write " + (path_ / name).string() + ": " + error.code().message() +
                "; need a run folder that can be written to (run.dir)");
  }
}

}  // namespace mantissa
