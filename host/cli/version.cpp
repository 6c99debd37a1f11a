// mantissa version
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "plugin/abi_version.h"

namespace mantissa {
namespace {

void print_version(bool json) {
  const std::string abi = std::to_string(kAbiVersion.major) + "." + std::to_string(kAbiVersion.minor);
  if (json) {
    print({{"mantissa", MANTISSA_VERSION}, {"plugin_abi", abi}, {"libtorch", LIBTORCH_VERSION}});
  } else {
    std::printf("mantissa %s\nplugin ABI %s\nLibTorch %s\n", MANTISSA_VERSION, abi.c_str(), LIBTORCH_VERSION);
  }
}

}  // namespace

void add_version_command(CLI::App& app, Program& program) {
  CLI::App* version = app.add_subcommand("version", "print the versions of the program, its plugin ABI and LibTorch");
  add_json_option(*version, program);
  version->callback([&program] { print_version(program.json); });
}

}  // namespace mantissa
