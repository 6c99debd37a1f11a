// The program `mantissa`: parses the command line, runs one subcommand, and turns every error into one report and one
// exit code.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/usage.h"
#include "comm/terminate.h"

namespace mantissa {
namespace {

// One line for each problem.
std::vector<std::string> lines_of(const std::string& message) {
  std::vector<std::string> lines;
  std::istringstream in(message);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

int fail(const Program& program, ExitCode exit_code, const std::string& message) {
  if (program.json) {
    print({{"ok", false}, {"exit_code", static_cast<int>(exit_code)}, {"errors", lines_of(message)}});
  } else {
    for (const std::string& line : lines_of(message)) log::error(line);
  }
  return static_cast<int>(exit_code);
}

// Options of every command; they may stand before or after its name.
void add_common_options(CLI::App& app, Program& program) {
  app.fallthrough();
  app.add_option_function<std::string>(
         "--color",
         [&program](const std::string& when) {
           if (when != "auto" && when != "always" && when != "never")
             throw CLI::ValidationError("--color", "got \"" + when + "\", need auto, always or never");
           program.color = when;
         },
         "auto (a terminal, and NO_COLOR is not set), always or never")
      ->type_name("WHEN");
  CLI::Option* quiet = app.add_flag("-q,--quiet", program.quiet, "say only warnings and errors");
  app.add_flag_function(
         "-v,--verbose", [](int64_t) { log::set_level(log::Level::debug); }, "say more, on stderr")
      ->excludes(quiet);
}

void add_commands(CLI::App& app, Program& program) {
  app.require_subcommand(1);
  add_train_command(app, program);
  add_config_command(app, program);
  add_plugin_command(app, program);
  add_version_command(app, program);
  add_completion_command(app, program);
}

// Data that did not reach its file is an error, told on stderr whatever was asked. A run goes on without a reader: its
// results are in the run folder.
int check_written(const CLI::App& app, const Program& program) {
  if (app.got_subcommand("train") && !program.json) return program.exit_code;
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return program.exit_code;
  log::error(std::string("the output could not be written: ") + std::strerror(errno != 0 ? errno : EIO) +
             "; is the disk full?");
  return static_cast<int>(ExitCode::failed);
}

constexpr const char* kFooter =
    "First steps:\n"
    "  mantissa config check configs/quickstart.toml            what is wrong with a config, all of it at once\n"
    "  mantissa train configs/quickstart.toml --dry-run         plan and memory, nothing is started\n"
    "  mantissa train configs/quickstart.toml --ranks 2         train on two ranks of this machine\n"
    "  mantissa COMMAND --help                                  more about a command\n"
    "\n"
    "Exit codes: 0 done, 1 the run failed, 2 command line or config, 3 plugin refused, 4 weights file unusable,\n"
    "5 diverged, 129, 130 and 143 stopped by a signal.";

int run(int argc, char** argv) {
  Program program;
  program.executable = std::filesystem::read_symlink("/proc/self/exe");
  CLI::App app{
      "Mantissa trains models in C++ with fully sharded data parallelism, and loads its numerics from plugins.",
      "mantissa"};
  add_common_options(app, program);
  add_commands(app, program);
  app.footer(kFooter);  // of the program alone: commands take over what is set before them
  app.parse_complete_callback([&program] { log::set_color(program.color); });
  try {
    app.parse(argc, argv);
    return check_written(app, program);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return fail(program, ExitCode::usage, usage_problem(app, error, {argv + 1, argv + argc}));
  } catch (...) {
    const Failure failure = describe(std::current_exception());
    return fail(program, failure.exit_code, failure.text);
  }
}

}  // namespace

}  // namespace mantissa

int main(int argc, char** argv) {
  mantissa::install_terminate_handler();
  return mantissa::run(argc, argv);
}
