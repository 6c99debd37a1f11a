// mantissa plugin list|info
#include <cstdio>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "plugin/find.h"
#include "plugin/inspect.h"

namespace mantissa {
namespace {

void list(const Program& program) {
  for (const FoundPlugin& found : list_plugins(from_environment(program.executable))) {
    try {
      const PluginDescription plugin = inspect_plugin(found.file);
      std::printf("%-16s %-10s %s\n", plugin.identity.id.c_str(), plugin.identity.version.c_str(),
                  plugin.identity.summary.c_str());
    } catch (const PluginRefused& refused) {
      std::printf("%-16s %-10s refused: %s\n", found.name.c_str(), "-", refused.what());
    }
  }
}

void info(const Program& program, const std::string& plugin) {
  const bool is_path = plugin.find('/') != std::string::npos;
  const PluginDescription found = inspect_plugin(is_path ? std::filesystem::absolute(plugin)
                                                         : find_plugin(plugin, from_environment(program.executable)));
  const PluginIdentity& id = found.identity;
  std::printf(
      "id       %s\nversion  %s\nvendor   %s\nsummary  %s\nfile     %s\nsha256   %s\nABI      %u.%u\nclips by %s\n",
      id.id.c_str(), id.version.c_str(), id.vendor.c_str(), id.summary.c_str(), id.file.c_str(), id.sha256.c_str(),
      id.abi_major, id.abi_minor, found.clips_by.c_str());
  std::printf("%s", found.options.empty() ? "options  none\n"
                                          : ("\noptions, under [precision.options]:\n" + found.options).c_str());
}

}  // namespace

void add_plugin_command(CLI::App& app, Program& program) {
  CLI::App* plugin = app.add_subcommand("plugin", "list the precision plugins that are found, or describe one");
  plugin->require_subcommand(1);
  plugin->add_subcommand("list", "every plugin on the search path")->callback([&program] { list(program); });
  CLI::App* info_command = plugin->add_subcommand("info", "identity, hash, ABI and options of a plugin");
  const auto name = std::make_shared<std::string>();
  info_command->add_option("PLUGIN", *name, "a name, or a path")->required();
  info_command->callback([&program, name] { info(program, *name); });
}

}  // namespace mantissa
