// The line of a terminal that a progress bar stands on, below all other lines.
//
// The cursor rests in the bar's first column. So everything from there on can be erased before another line is written
// (base/terminal.h, for all writers), also where a narrower window has wrapped the bar, and what the terminal echoes
// (^C) is gone with the next update.
#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>

namespace mantissa {

/// One per process. Never waits for a terminal that takes nothing (Ctrl-S, a lost connection), but in `close`.
class BarLine {
 public:
  /// `fd`: a terminal. `group`: the process group that the shell knows of this job; ranks run in another.
  BarLine(int fd, pid_t group);
  /// Closes.
  ~BarLine();
  BarLine(const BarLine&) = delete;

  /// Of the window, now.
  int columns() const;
  /// Whether the job has the terminal: not started with `&`, nor sent to the background.
  bool in_foreground() const;

  /// Whole lines to stay above the bar. Shown with the next `draw` or `close`.
  void print(std::string_view lines) { pending_ += lines; }
  /// Pending lines and the bar, in one write. An empty bar is none.
  void draw(std::string_view bar);
  /// Erases the bar and shows all pending lines.
  void close();

 private:
  void erase_before_lines(std::string& out) const;
  void write_all(std::string_view text);

  const int fd_;
  const pid_t group_;
  std::string pending_;
};

}  // namespace mantissa
