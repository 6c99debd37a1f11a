// Arguments that several commands take, so that they read the same everywhere.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace mantissa {

struct Program;

void add_config_argument(CLI::App& command, std::filesystem::path& file);
void add_set_option(CLI::App& command, std::vector<std::string>& overrides);
/// Of a command that lists or checks.
CLI::Option* add_json_option(CLI::App& command, Program& program);

}  // namespace mantissa
