// mantissa config check|show
#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/json.h"
#include "config/load.h"

namespace mantissa {
namespace {

struct Arguments {
  std::filesystem::path file;
  std::vector<std::string> overrides;
};

void add_arguments(CLI::App* command, const std::shared_ptr<Arguments>& arguments) {
  add_config_argument(*command, arguments->file);
  add_set_option(*command, arguments->overrides);
}

// All that `train` finds without ranks; none of the plugin's slots is called.
void check(const Arguments& arguments, const Program& program) {
  const Job job = prepare({arguments.file, arguments.overrides}, program);
  if (program.json) {
    print({{"ok", true}, {"file", arguments.file.string()}, {"plugin", job.plugin_file.string()}});
  } else if (!program.quiet) {
    std::printf("%s: ok\n", arguments.file.c_str());
  }
}

void show_json(const LoadedConfig& loaded) {
  Json answer{{"settings", Json::array()}};
  for (const Setting& setting : loaded.settings)
    answer["settings"].push_back({{"key", setting.key}, {"value", setting.value}, {"origin", setting.origin}});
  print(answer);
}

void show(const Arguments& arguments, const Program& program) {
  const LoadedConfig loaded = load_config(arguments.file, arguments.overrides);
  if (program.json) return show_json(loaded);
  size_t width = 0;
  for (const Setting& setting : loaded.settings) width = std::max(width, setting.key.size() + setting.value.size() + 3);
  for (const Setting& setting : loaded.settings) {
    const std::string line = setting.key + " = " + setting.value;
    std::printf("%-*s  # %s\n", static_cast<int>(width), line.c_str(), setting.origin.c_str());
  }
}

}  // namespace

void add_config_command(CLI::App& app, Program& program) {
  CLI::App* config = app.add_subcommand("config", "check a config, or show what it comes to");
  config->require_subcommand(1);
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* check_command = config->add_subcommand("check", "report everything that is wrong with a config");
  add_arguments(check_command, arguments);
  add_json_option(*check_command, program);
  check_command->callback([arguments, &program] { check(*arguments, program); });
  CLI::App* show_command = config->add_subcommand("show", "print every key with its value and where it came from");
  add_arguments(show_command, arguments);
  add_json_option(*show_command, program);
  show_command->callback([arguments, &program] { show(*arguments, program); });
}

}  // namespace mantissa
