// What a person sees of a run: a few lines at its start, one a logged step, and a closing summary.
#pragma once
#include <iosfwd>
#include <string>
#include <string_view>

#include "train/events.h"

namespace mantissa {

/// Lines without cursor movements, so that they read well in a terminal, a file and a log alike. Flushed at once.
class ProgressLines : public EventListener {
 public:
  /// `out` must outlive this.
  explicit ProgressLines(std::ostream& out) : out_(out) {}

  void started(const RunStarted& run) override;
  void stepped(const StepMetrics& metrics) override;
  /// The line of an evaluation, for those who see the other numbers elsewhere.
  void evaluated(const StepMetrics& metrics);
  void skipped(const StepSkipped& skip) override;
  void finished(const RunFinished& result) override;

 private:
  std::string step_label(int64_t step) const;
  void print_how_it_ended(const RunFinished& result);
  void print_results(const RunFinished& result);
  void print_next_steps(const RunFinished& result);

  std::ostream& out_;
  RunStarted run_;
  int64_t skipped_step_ = -1;
};

/// `text` with everything that a terminal would not show as text made '?': control characters but newlines, and bytes
/// that are no UTF-8. A model that is not trained yet writes any byte.
std::string printable(std::string_view text);

}  // namespace mantissa
