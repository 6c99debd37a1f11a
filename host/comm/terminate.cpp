#include "comm/terminate.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <utility>

#include "base/log.h"

namespace mantissa {
namespace {

// Globals, as std::terminate has no other way to reach anything.
TellFailure& report() {
  static TellFailure tell;
  return tell;
}

TellFailure& last_words() {
  static TellFailure tell;
  return tell;
}

// Gloo finds that a peer sends more than this rank expects on its own thread, where nobody can catch it.
bool is_size_mismatch(const std::string& text) { return text.find("preamble.length") != std::string::npos; }

Failure failure_now() {
  const std::exception_ptr current = std::current_exception();
  if (!current) return {ExitCode::failed, "std::terminate was called without an exception"};
  Failure failure = describe(current);
  if (is_size_mismatch(failure.text)) {
    failure.text = "ranks called different collectives, of different sizes (" + failure.text +
                   "); every rank must run the same units in the same order";
  } else if (::gettid() != ::getpid()) {
    failure.text = "an exception on a thread that nobody watches: " + failure.text;
  }
  return failure;
}

[[noreturn]] void end() {
  static std::atomic<bool> ending = false;
  static thread_local bool telling = false;
  if (telling) std::_Exit(static_cast<int>(ExitCode::failed));  // an exception while telling
  while (ending.exchange(true)) ::pause();                      // another thread was first
  telling = true;
  const Failure failure = failure_now();
  if (last_words() && failure.own) last_words()(failure);
  report()(failure);
  std::_Exit(static_cast<int>(failure.exit_code));
}

}  // namespace

void install_terminate_handler() {
  end_by_terminate([](const Failure& failure) { log::error(failure.text); });
}

void end_by_terminate(TellFailure tell) {
  report() = std::move(tell);
  std::set_terminate(end);
}

LastWords::LastWords(TellFailure tell) { last_words() = std::move(tell); }
LastWords::~LastWords() { last_words() = nullptr; }

}  // namespace mantissa
