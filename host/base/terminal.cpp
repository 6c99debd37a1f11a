#include "base/terminal.h"

#include <unistd.h>

#include <cstdlib>

namespace mantissa {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool takes_cursor_moves(int fd) {
  const std::string_view term = environment("TERM");
  return ::isatty(fd) == 1 && !term.empty() && term != "dumb";
}

std::string_view line_start(int fd) { return takes_cursor_moves(fd) ? kEraseLine : ""; }

bool may_color(std::string_view when, int fd) {
  if (when != "auto") return when == "always";
  return takes_cursor_moves(fd) && environment("NO_COLOR").empty();
}

}  // namespace mantissa
