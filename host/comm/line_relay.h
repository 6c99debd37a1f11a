// Passes the lines of ranks on to the launcher's own stdout and stderr, each with `[rank N] ` before it.
#pragma once
#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace mantissa {

/// Whole lines on their way to a descriptor that may be slow. Writes only what the descriptor takes at once, so that a
/// pager that does not read never keeps the launcher from its signals.
class LineSink {
 public:
  explicit LineSink(int fd) : fd_(fd) {}
  int fd() const { return fd_; }
  bool has_pending() const { return !pending_.empty(); }
  /// So much is pending that its sources should wait.
  bool is_full() const;
  /// A line without its end; what keeps it apart from a progress bar on a terminal is added.
  void add_line(std::string_view prefix, std::string_view line);
  /// One write after poll said POLLOUT. What cannot be written (closed, disk full) is dropped: losing lines must not
  /// end a job.
  void write_some();

 private:
  int fd_;
  std::string pending_;
};

/// Cuts what one rank writes to one stream into lines. A line without an end is passed on when the stream ends, or when
/// it is longer than 1 MiB.
class LineRelay {
 public:
  LineRelay(int rank, FileDescriptor source, LineSink& sink);
  int fd() const { return source_.get(); }
  bool is_open() const { return source_.is_open(); }
  const LineSink& sink() const { return *sink_; }
  /// Reads what is there, at most one buffer; returns false if nothing was. Closes itself at the end of the stream.
  bool read_some();
  /// Ends the last line and closes.
  void finish();

 private:
  void take(std::string_view text);
  void pass_on(std::string_view line);

  std::string prefix_;
  FileDescriptor source_;
  LineSink* sink_;
  std::string partial_;
};

}  // namespace mantissa
