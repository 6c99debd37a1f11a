// The subcommands of `mantissa`, one file each. Each adds itself to the parser; its callback sets the exit code.
#pragma once
#include <filesystem>
#include <string>

namespace CLI {
class App;
}

namespace mantissa {

struct Program {
  std::filesystem::path executable;  ///< absolute, links resolved: plugins are found beside it
  int exit_code = 0;
  bool json = false;           ///< --json: data and errors go to stdout as one JSON object
  std::string color = "auto";  ///< --color
  bool quiet = false;          ///< -q: warnings and errors only
};

void add_train_command(CLI::App& app, Program& program);
void add_config_command(CLI::App& app, Program& program);
void add_plugin_command(CLI::App& app, Program& program);
void add_version_command(CLI::App& app, Program& program);
/// After all others: it completes their names.
void add_completion_command(CLI::App& app, Program& program);

}  // namespace mantissa
