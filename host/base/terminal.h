// What a terminal takes, and how several writers share one: a progress bar may stand on the line where a new line is
// about to be written.
#pragma once
#include <string_view>

namespace mantissa {

/// Moves to the beginning of the line and erases all from there on: a bar, also one that a narrower window has wrapped.
inline constexpr std::string_view kEraseLine = "\r\x1b[J";

/// Whether `fd` is a terminal that understands cursor movements (TERM is set, and not "dumb").
bool takes_cursor_moves(int fd);

/// What a whole line for `fd` must begin with, in the same write(2), so that it does not mix with a bar. A bar leaves
/// the cursor at its own first column and is drawn again after the line. Empty where no bar can be.
std::string_view line_start(int fd);

/// `when`: "always", "never", or "auto": a terminal, and NO_COLOR is not set.
bool may_color(std::string_view when, int fd);

}  // namespace mantissa
