// metrics.jsonl: one JSON object a logged step, for programs.
#pragma once
#include <filesystem>
#include <string>

#include "report/line_file.h"
#include "train/events.h"

namespace mantissa {

/// One line of the file. The keys always come in the same order; val_loss and val_bits_per_byte only where they were
/// measured.
std::string metrics_row(const StepMetrics& metrics);

class MetricsFile : public EventListener {
 public:
  explicit MetricsFile(const std::filesystem::path& run_folder) : file_(run_folder / "metrics.jsonl") {}
  void stepped(const StepMetrics& metrics) override { file_.append(metrics_row(metrics)); }

 private:
  LineFile file_;
};

}  // namespace mantissa
