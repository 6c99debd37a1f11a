// The program `mantissa`: parses the command line, runs one subcommand, and turns every error into one report and one
// exit code.
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "comm/process_group.h"

namespace mantissa {
namespace {

// One line for each problem.
void report(const std::string& message) {
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) std::fprintf(stderr, "mantissa: error: %s\n", line.c_str());
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// The first argument that is no command, with the nearest one.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  const CLI::App* at = &app;
  for (int i = 1; i < argc; ++i) {
    const std::vector<std::string> names = command_names(*at);
    if (names.empty() || argv[i][0] == '-') return "";
    if (std::find(names.begin(), names.end(), argv[i]) == names.end()) {
      const auto hint = nearest(argv[i], names);
      return "unknown command \"" + std::string(argv[i]) + "\"" + (hint ? "; did you mean \"" + *hint + "\"?" : ".") +
             " See mantissa --help";
    }
    at = at->get_subcommand(argv[i]);
  }
  return "";
}

int run(int argc, char** argv) {
  Program program;
  program.executable = std::filesystem::read_symlink("/proc/self/exe");
  CLI::App app{
      "Mantissa trains models in C++ with fully sharded data parallelism, and loads its numerics from plugins.",
      "mantissa"};
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 the run failed, 2 usage or config, 3 plugin refused, 4 weights file unusable, 5 "
      "diverged.");
  add_train_command(app, program);
  add_config_command(app, program);
  add_plugin_command(app, program);
  add_version_command(app);
  try {
    app.parse(argc, argv);
    return program.exit_code;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string unknown = unknown_command(app, argc, argv);
    report(unknown.empty() ? std::string(error.what()) + ". See mantissa --help" : unknown);
    return static_cast<int>(ExitCode::usage);
  } catch (const Error& error) {
    report(error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    report(std::string("unexpected: ") + error.what());
    return static_cast<int>(ExitCode::failed);
  }
}

}  // namespace
}  // namespace mantissa

int main(int argc, char** argv) {
  mantissa::install_terminate_handler();
  return mantissa::run(argc, argv);
}
