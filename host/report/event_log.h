// events.jsonl: what happened in a run and when, one JSON object a line: {"time": UTC, "event": "start" | "skip" |
// "stop", ...}.
#pragma once
#include <filesystem>
#include <string>

#include "report/line_file.h"
#include "report/utc_time.h"
#include "train/events.h"

namespace mantissa {

class EventLog : public EventListener {
 public:
  explicit EventLog(const std::filesystem::path& run_folder, WallClock clock = std::chrono::system_clock::now)
      : file_(run_folder / "events.jsonl"), clock_(std::move(clock)) {}

  void started(const RunStarted& event) override;
  void skipped(const StepSkipped& event) override;
  void finished(const RunFinished& event) override;
  void failed(const std::string& cause, int exit_code) override;

 private:
  LineFile file_;
  WallClock clock_;
};

}  // namespace mantissa
