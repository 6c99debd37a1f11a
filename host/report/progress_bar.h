// What a person at a terminal sees of a run: lines that stay, and below them a bar.
#pragma once
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <sstream>
#include <string>

#include "report/bar_line.h"
#include "report/bar_text.h"
#include "report/pace.h"
#include "report/progress.h"
#include "train/events.h"

namespace mantissa {

struct ProgressOptions {
  int fd = STDOUT_FILENO;
  std::string color = "auto";  ///< "always", "never" or "auto"
  bool quiet = false;          ///< nothing at all
  pid_t group = ::getpgrp();   ///< that the shell started; to be asked before ranks are forked
};

/// Nothing if quiet, the bar where `options.fd` is a terminal that can show one, else lines.
std::unique_ptr<EventListener> make_progress(const ProgressOptions& options);

/// Numbers of every step in a bar, drawn at most ten times a second. Evaluations, skipped steps and the summary are
/// lines that stay. In the background there is no bar, but a line each logged step.
class ProgressBar : public EventListener {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  explicit ProgressBar(const ProgressOptions& options, Clock clock = std::chrono::steady_clock::now);

  void started(const RunStarted& run) override;
  void ticked(const StepTick& tick) override;
  void stepped(const StepMetrics& metrics) override;
  void skipped(const StepSkipped& skip) override;
  void finished(const RunFinished& result) override;
  void failed(const std::string& cause, int exit_code) override;

 private:
  void draw();
  void close();
  void move_lines();

  BarLine line_;
  Clock clock_;
  BarStyle style_;
  std::ostringstream text_;
  ProgressLines lines_{text_};
  BarNumbers numbers_;
  double tokens_per_step_ = 0;
  Pace pace_;
  std::chrono::steady_clock::time_point ticked_at_, drawn_at_;
};

}  // namespace mantissa
