// mantissa version
#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "plugin/abi_version.h"

namespace mantissa {

void add_version_command(CLI::App& app) {
  app.add_subcommand("version", "print the versions of the program, its plugin ABI and LibTorch")->callback([] {
    std::printf("mantissa %s\nplugin ABI %u.%u\nLibTorch %s\n", MANTISSA_VERSION, kAbiVersion.major, kAbiVersion.minor,
                LIBTORCH_VERSION);
  });
}

}  // namespace mantissa
