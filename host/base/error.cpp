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

// LibTorch puts a stack trace below the first line of its exceptions.
std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

const char* const kOutOfMemory = "out of memory";
const char* const kNeedLessMemory = "; use a smaller model or batch, or more ranks";

Failure failure_of(const std::exception& error) {
  const std::string text = first_line(error.what());
  // The allocator of LibTorch throws no bad_alloc.
  const bool no_memory = text.find("can't allocate memory") != std::string::npos;
  return {ExitCode::failed, no_memory ? kOutOfMemory + (" (" + text + ")") + kNeedLessMemory : text};
}

}  // namespace

ConfigError::ConfigError(std::vector<std::string> problems)
    : Error(joined(problems), ExitCode::usage), problems_(std::move(problems)) {}

PluginRefused::PluginRefused(std::string_view kind, const std::string& message)
    : Error(std::string(kind) + ": " + message, ExitCode::plugin), kind_(kind) {}

PeerFailed::PeerFailed(int rank, ExitCode exit_code, const std::string& cause)
    : Error("rank " + std::to_string(rank) + " failed: " + cause, exit_code), rank_(rank) {}

Failure describe(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const PeerFailed& error) {
    return {error.exit_code(), error.what(), false};
  } catch (const CommError& error) {
    return {error.exit_code(), error.what(), false};
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::failed, std::string(kOutOfMemory) + kNeedLessMemory};
  } catch (const std::exception& error) {
    return failure_of(error);
  } catch (...) {
    return {ExitCode::failed, "an exception of unknown type"};
  }
}

}  // namespace mantissa
