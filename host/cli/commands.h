// The subcommands of `mantissa`, one file each. Each adds itself to the parser; its callback sets the exit code.
#pragma once
#include <filesystem>

namespace CLI {
class App;
}

namespace mantissa {

struct Program {
  std::filesystem::path executable;  ///< absolute, links resolved: plugins are found beside it
  int exit_code = 0;
};

void add_train_command(CLI::App& app, Program& program);
void add_config_command(CLI::App& app, Program& program);
void add_plugin_command(CLI::App& app, Program& program);
void add_version_command(CLI::App& app);

}  // namespace mantissa
