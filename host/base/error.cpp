#include "base/error.h"

#include <new>

namespace mantissa {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (!text.empty()) text += '\n';
    text += line;
  }
  return text;
}

}  // namespace

ConfigError::ConfigError(std::vector<std::string> problems)
    : Error(joined(problems), ExitCode::usage), problems_(std::move(problems)) {}

PluginRefused::PluginRefused(std::string_view kind, const std::string& message)
    : Error(std::string(kind) + ": " + message, ExitCode::plugin), kind_(kind) {}

PeerFailed::PeerFailed(int rank, ExitCode exit_code, const std::string& cause)
    : Error("rank " + std::to_string(rank) + " failed: " + cause, exit_code), rank_(rank) {}

namespace {

// Without the stack trace that LibTorch puts behind its messages.
std::string without_trace(std::string_view text) {
  text = text.substr(0, text.find("\nException raised from "));
  text.remove_suffix(text.size() - text.find_last_not_of(" \n") - 1);
  return std::string(text);
}

}  // namespace

Failure describe(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::failed, "out of memory; use a smaller model or batch, or more ranks"};
  } catch (const std::exception& error) {
    return {ExitCode::failed, without_trace(error.what())};
  } catch (...) {
    return {ExitCode::failed, "an exception of unknown type"};
  }
}

}  // namespace mantissa
