// mantissa config check|show
#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/job.h"
#include "config/load.h"
#include "plugin/inspect.h"

namespace mantissa {
namespace {

struct Arguments {
  std::filesystem::path file;
  std::vector<std::string> overrides;
};

void add_arguments(CLI::App* command, const std::shared_ptr<Arguments>& arguments) {
  command->add_option("CONFIG", arguments->file, "the TOML file")->required();
  command
      ->add_option("--set", arguments->overrides,
                   "override a key: dotted.key=value, value in TOML syntax; may be repeated")
      ->allow_extra_args(false);
}

// All that `train` finds without ranks, and the plugin's options; none of its slots is called.
void check(const Arguments& arguments, const Program& program) {
  const Job job = prepare({arguments.file, arguments.overrides}, program);
  check_plugin(job.plugin_file, job.loaded.config);
  std::printf("%s: ok\n", arguments.file.c_str());
}

void show(const Arguments& arguments) {
  const LoadedConfig loaded = load_config(arguments.file, arguments.overrides);
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
  check_command->callback([arguments, &program] { check(*arguments, program); });
  CLI::App* show_command = config->add_subcommand("show", "print every key with its value and where it came from");
  add_arguments(show_command, arguments);
  show_command->callback([arguments] { show(*arguments); });
}

}  // namespace mantissa
