// mantissa plugin list|info
#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "plugin/find.h"
#include "plugin/inspect.h"

namespace mantissa {
namespace {

// A plugin on the search path, or why it would be refused.
struct Listed {
  FoundPlugin found;
  PluginIdentity identity;
  std::string refused;  // empty: it would be taken
};

std::vector<Listed> find_all(const Program& program) {
  std::vector<Listed> all;
  for (const FoundPlugin& found : list_plugins(from_environment(program.executable))) {
    Listed& plugin = all.emplace_back(Listed{found, {}, ""});
    try {
      plugin.identity = inspect_plugin(found.file).identity;
    } catch (const PluginRefused& refused) {
      plugin.refused = refused.what();
    }
  }
  return all;
}

void list(const Program& program) {
  Json answer{{"plugins", Json::array()}};
  for (const Listed& plugin : find_all(program)) {
    const PluginIdentity& id = plugin.identity;
    if (!program.json && plugin.refused.empty()) {
      std::printf("%-16s %-10s %s\n", id.id.c_str(), id.version.c_str(), id.summary.c_str());
    } else if (!program.json) {
      std::printf("%-16s %-10s refused: %s\n", plugin.found.name.c_str(), "-", plugin.refused.c_str());
    } else if (plugin.refused.empty()) {
      answer["plugins"].push_back({{"name", plugin.found.name},
                                   {"file", plugin.found.file.string()},
                                   {"id", id.id},
                                   {"version", id.version},
                                   {"summary", id.summary},
                                   {"sha256", id.sha256}});
    } else {
      answer["plugins"].push_back(
          {{"name", plugin.found.name}, {"file", plugin.found.file.string()}, {"refused", plugin.refused}});
    }
  }
  if (program.json) print(answer);
}

Json to_json(const PluginDescription& plugin) {
  const PluginIdentity& id = plugin.identity;
  Json options = Json::array();
  for (const OptionDescription& option : plugin.options) {
    options.push_back({{"key", option.key},
                       {"type", option.type},
                       {"default", option.default_value},
                       {"allowed", option.allowed},
                       {"meaning", option.help}});
  }
  return {{"id", id.id},
          {"version", id.version},
          {"vendor", id.vendor},
          {"summary", id.summary},
          {"file", id.file.string()},
          {"sha256", id.sha256},
          {"abi", std::to_string(id.abi_major) + "." + std::to_string(id.abi_minor)},
          {"clips_by", plugin.clips_by},
          {"options", std::move(options)}};
}

// One option a line, with a heading.
std::string table_of(const std::vector<OptionDescription>& options) {
  using Row = std::array<std::string, 5>;
  std::vector<Row> rows = {{"option", "type", "default", "allowed", "meaning"}};
  for (const OptionDescription& o : options) rows.push_back({o.key, o.type, o.default_value, o.allowed, o.help});
  std::array<size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    table += line + '\n';
  }
  return table;
}

void info(const Program& program, const std::string& plugin) {
  const bool is_path = plugin.find('/') != std::string::npos;
  const PluginDescription found = inspect_plugin(is_path ? std::filesystem::absolute(plugin)
                                                         : find_plugin(plugin, from_environment(program.executable)));
  if (program.json) return print(to_json(found));
  const PluginIdentity& id = found.identity;
  std::printf(
      "id       %s\nversion  %s\nvendor   %s\nsummary  %s\nfile     %s\nsha256   %s\nABI      %u.%u\nclips by %s\n",
      id.id.c_str(), id.version.c_str(), id.vendor.c_str(), id.summary.c_str(), id.file.c_str(), id.sha256.c_str(),
      id.abi_major, id.abi_minor, found.clips_by.c_str());
  if (found.options.empty()) {
    std::printf("options  none\n");
  } else {
    std::printf("\noptions, under [precision.options]:\n%s", table_of(found.options).c_str());
  }
}

}  // namespace

void add_plugin_command(CLI::App& app, Program& program) {
  CLI::App* plugin = app.add_subcommand("plugin", "list the precision plugins that are found, or describe one");
  plugin->require_subcommand(1);
  CLI::App* list_command = plugin->add_subcommand("list", "every plugin on the search path");
  add_json_option(*list_command, program);
  list_command->callback([&program] { list(program); });
  CLI::App* info_command = plugin->add_subcommand("info", "identity, hash, ABI and options of a plugin");
  const auto name = std::make_shared<std::string>();
  info_command->add_option("PLUGIN", *name, "a name, or a path")->required();
  add_json_option(*info_command, program);
  info_command->callback([&program, name] { info(program, *name); });
}

}  // namespace mantissa
