// mantissa completion bash|zsh|fish: a script for the shell. What it asks for by the hidden command `complete` comes
// from the parser itself, the plugins that are found and the config that is named, so it cannot fall behind them.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/usage.h"
#include "config/load.h"
#include "plugin/find.h"

namespace mantissa {
namespace {

// Each asks for the candidates of the last word; without any, the shell completes files.
constexpr const char* kBash = R"(_mantissa() {
  local IFS=$'\n' word=${COMP_LINE:0:COMP_POINT}
  [[ $word == *[[:space:]] ]] && word= || word=${word##*[[:space:]]}
  COMPREPLY=($(mantissa complete -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" "$word" 2>/dev/null))
  [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o bashdefault -o default -F _mantissa mantissa
)";

constexpr const char* kZsh = R"(#compdef mantissa
_mantissa() {
  local -a found
  found=("${(@f)$(mantissa complete -- "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
  if [[ -n ${found[1]} ]]; then
    [[ ${found[1]} == *= ]] && compadd -S '' -- $found || compadd -- $found
  else
    _files
  fi
}
compdef _mantissa mantissa
)";

constexpr const char* kFish = R"(function __mantissa_complete
  set -l words (commandline -opc) (commandline -ct)
  mantissa complete -- $words[2..-1] 2>/dev/null
end
complete -c mantissa -a '(__mantissa_complete)'
)";

// Keys of the config among `words`, as `--set` takes them.
std::vector<std::string> settable_keys(const std::vector<std::string>& words) {
  std::vector<std::string> keys;
  for (const std::string& word : words) {
    if (!word.ends_with(".toml")) continue;
    try {
      for (const Setting& setting : load_config(word).settings) keys.push_back(setting.key + "=");
    } catch (const Error&) {  // a config that does not load completes nothing
    }
  }
  return keys;
}

std::vector<std::string> plugin_names(const Program& program) {
  std::vector<std::string> names;
  for (const FoundPlugin& found : list_plugins(from_environment(program.executable))) names.push_back(found.name);
  return names;
}

std::vector<std::string> candidates(const CLI::App& app, const Program& program, const std::vector<std::string>& words,
                                    const std::string& last) {
  const std::string before = words.empty() ? "" : words.back();
  const CLI::App& command = command_at(app, words);
  if (before == "--set") return settable_keys(words);
  if (before == "--color") return {"auto", "always", "never"};
  if (before == "--ranks") return {"1", "2", "4", "8"};
  if (last.starts_with("-")) return option_names(command);
  if (command.get_name() == "info") return plugin_names(program);
  return command_names(command);
}

void complete(const CLI::App& app, const Program& program, std::vector<std::string> words) {
  const std::string last = words.empty() ? "" : words.back();
  if (!words.empty()) words.pop_back();
  for (const std::string& candidate : candidates(app, program, words, last)) {
    if (candidate.starts_with(last)) std::printf("%s\n", candidate.c_str());
  }
}

}  // namespace

void add_completion_command(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand("completion", "print a script that completes commands in a shell");
  command->require_subcommand(1);
  command->footer(
      "bash: mantissa completion bash >~/.local/share/bash-completion/completions/mantissa\n"
      "zsh:  mantissa completion zsh >\"${fpath[1]}/_mantissa\"\n"
      "fish: mantissa completion fish >~/.config/fish/completions/mantissa.fish");
  for (const auto& [shell, script] : {std::pair{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}}) {
    command->add_subcommand(shell, std::string("for ") + shell)->callback([script] { std::printf("%s", script); });
  }
  CLI::App* hidden = app.add_subcommand("complete", "what could stand in the place of the last word")->group("");
  const auto words = std::make_shared<std::vector<std::string>>();
  hidden->add_option("WORDS", *words);
  hidden->callback([&app, &program, words] { complete(app, program, *words); });
}

}  // namespace mantissa
