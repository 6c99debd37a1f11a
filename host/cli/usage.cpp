#include "cli/usage.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "base/nearest.h"

namespace mantissa {
namespace {

// "mantissa plugin info"
std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

std::string see_help(const CLI::App& command) { return "; see " + full_name(command) + " --help"; }

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

std::string meant(const std::string& word, const std::vector<std::string>& names) {
  const auto hint = nearest(word, names);
  return hint ? "; did you mean " + *hint + "?" : "";
}

bool is_option(const std::string& argument) { return argument.size() > 1 && argument[0] == '-'; }

// What was given beyond what `command` takes.
std::string unexpected(const CLI::App& command, const std::string& argument) {
  if (is_option(argument)) {
    const std::string name = argument.substr(0, argument.find('='));
    return "unknown option " + name + meant(name, option_names(command)) + see_help(command);
  }
  return "got \"" + argument + "\" where nothing more was expected" + see_help(command);
}

// `problem` begins with the option's name and a colon.
std::string value_missing(const CLI::App& command, const std::string& problem) {
  const std::string name = problem.substr(0, problem.find(':'));
  const CLI::Option* option = command.get_option_no_throw(name);
  return name + ": got no value, need one" +
         (option != nullptr ? ": " + name + " " + option->get_type_name() : std::string()) + see_help(command);
}

// A word in the place of a command that is none.
std::string unknown_command(const CLI::App& command, const std::string& word) {
  const std::vector<std::string> names = command_names(command);
  const std::string hint = meant(word, names);
  return "unknown command \"" + word + "\"" + (hint.empty() ? "; need " + joined(names) : hint) + see_help(command);
}

}  // namespace

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent()) {
    for (const CLI::Option* option : at->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

const CLI::App& command_at(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* at = &app;
  for (const std::string& argument : arguments) {
    const std::vector<std::string> names = command_names(*at);
    if (std::find(names.begin(), names.end(), argument) != names.end()) at = at->get_subcommand(argument);
  }
  return *at;
}

std::string usage_problem(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& arguments) {
  const CLI::App& command = command_at(app, arguments);
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  if (!command_names(command).empty()) {
    const auto word = std::find_if(extras.begin(), extras.end(), [](const std::string& a) { return !is_option(a); });
    if (word != extras.end()) return unknown_command(command, *word);
    if (extras.empty() && error.get_name() == "RequiredError")
      return "need a command: " + joined(command_names(command)) + see_help(command);
  }
  if (!extras.empty()) return unexpected(command, extras.front());
  if (error.get_name() == "ArgumentMismatch") return value_missing(command, error.what());
  return std::string(error.what()) + see_help(command);
}

}  // namespace mantissa
