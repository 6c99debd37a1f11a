// How fast a run is going, and how long it will go on, from what its last steps took.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>

#include "train/events.h"

namespace mantissa {

class Pace {
 public:
  /// Steps that a speed is the mean over.
  static constexpr size_t kSteps = 20;

  void add(const StepTick& tick);
  /// One evaluation took so long. The last one stands for those to come; until there is one they count as nothing.
  void add_evaluation(double seconds);

  /// Steps a second, without evaluations; none before the first step.
  std::optional<double> steps_per_s() const;
  /// Until the last of `steps` is made and evaluated.
  std::optional<double> seconds_left(int64_t steps) const;

 private:
  std::deque<double> seconds_;
  double sum() const;
  int64_t done_ = 0, evaluations_left_ = 0;
  double evaluation_seconds_ = 0;
};

}  // namespace mantissa
