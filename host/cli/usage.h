// What is wrong with a command line, in words that say what to do.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace mantissa {

/// One line about `error`, thrown by app.parse for `arguments`; a mistyped command or option with the nearest right
/// one.
std::string usage_problem(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments);

/// The commands of `app`, those that are not hidden.
std::vector<std::string> command_names(const CLI::App& app);

/// The options of `app` as one types them ("--ranks", "-q"), those of the commands above it included.
std::vector<std::string> option_names(const CLI::App& app);

/// The command that `arguments` lead to, as far as they name commands.
const CLI::App& command_at(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace mantissa
