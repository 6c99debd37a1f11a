#include "cli/arguments.h"

#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace mantissa {

void add_config_argument(CLI::App& command, std::filesystem::path& file) {
  command.add_option("CONFIG", file, "the TOML file")->required()->type_name("FILE");
}

void add_set_option(CLI::App& command, std::vector<std::string>& overrides) {
  command.add_option("--set", overrides, "override a key; VALUE in TOML syntax; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

CLI::Option* add_json_option(CLI::App& command, Program& program) {
  return command.add_flag("--json", program.json, "one JSON object on stdout, errors too");
}

}  // namespace mantissa
