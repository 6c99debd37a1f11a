// The errors of Mantissa. Each carries the exit code of the program, is thrown where the fault is found and is reported
// once, at the top. A message says what failed, the value, what was needed, and what to do.
#pragma once
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa {

/// Exit codes of the program `mantissa`; documented in the README.
enum class ExitCode : int {
  done = 0,
  failed = 1,      ///< a slot, a rank, a collective, a bug
  usage = 2,       ///< command line or config
  plugin = 3,      ///< plugin or its options refused
  checkpoint = 4,  ///< checkpoint or weights file unusable
  diverged = 5,    ///< non-finite gradients, or the plugin's abort
  hung_up = 129,   ///< stopped in order, as the next two
  interrupted = 130,
  terminated = 143,
};

/// Base of all errors. As thrown itself: the run failed for a reason that has no class of its own.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode exit_code = ExitCode::failed)
      : std::runtime_error(message), exit_code_(exit_code) {}
  ExitCode exit_code() const { return exit_code_; }

 private:
  ExitCode exit_code_;
};

/// The command line, or a call of the library with arguments that can never work.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(message, ExitCode::usage) {}
};

/// Everything that is wrong with a config, one line each: `file:line:column: section.key: got X, need Y`.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<std::string> problems);
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  std::vector<std::string> problems_;
};

/// A plugin that is not taken. `kind` is one of the words of plugin_api/ABI.md: not-found, not-a-plugin, ...
class PluginRefused : public Error {
 public:
  PluginRefused(std::string_view kind, const std::string& message);
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
};

/// A checkpoint or weights file that cannot be used.
class CheckpointError : public Error {
 public:
  explicit CheckpointError(const std::string& message) : Error(message, ExitCode::checkpoint) {}
};

/// A collective failed, or a rank did not answer.
class CommError : public Error {
 public:
  explicit CommError(const std::string& message) : Error(message) {}
};

/// Gradients or loss are not finite and the user asked for an error, or the plugin gave up.
class Diverged : public Error {
 public:
  explicit Diverged(const std::string& message) : Error(message, ExitCode::diverged) {}
};

/// A call that is right in itself, made at a wrong place: a norm of gradients that are not reduced yet.
class OrderError : public Error {
 public:
  explicit OrderError(const std::string& message) : Error(message) {}
};

/// What an exception comes to for the program's end.
struct Failure {
  ExitCode exit_code = ExitCode::failed;
  std::string text;
  bool own = true;  ///< false: of PeerFailed and CommError, where another rank is to blame, or nobody
};

/// Of any exception; those that are no Error end the program with ExitCode::failed.
Failure describe(const std::exception_ptr& exception);

/// Contact with other ranks was lost, and they did not say why. Whoever watches their processes knows more than this
/// rank does: `observed` is what it saw, the message adds its guess.
class PeerLost : public CommError {
 public:
  PeerLost(const std::string& guess, std::string observed)
      : CommError(guess + ": " + observed), observed_(std::move(observed)) {}
  const std::string& observed() const { return observed_; }

 private:
  std::string observed_;
};

/// Another rank failed and told it; this rank ends with the same exit code.
class PeerFailed : public Error {
 public:
  PeerFailed(int rank, ExitCode exit_code, const std::string& cause);
  int rank() const { return rank_; }

 private:
  int rank_;
};

}  // namespace mantissa
