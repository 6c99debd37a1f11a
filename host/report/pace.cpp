#include "report/pace.h"

#include <algorithm>
#include <numeric>

namespace mantissa {

void Pace::add(const StepTick& tick) {
  seconds_.push_back(tick.seconds);
  // The first step sets up what the others find; it says little about them.
  if (seconds_.size() > kSteps || (tick.step == 1 && seconds_.size() == 2)) seconds_.pop_front();
  done_ = tick.step + 1;
  evaluations_left_ = tick.evaluations_left;
}

void Pace::add_evaluation(double seconds) {
  evaluation_seconds_ = seconds;
  evaluations_left_ = std::max<int64_t>(evaluations_left_ - 1, 0);
}

double Pace::sum() const { return std::accumulate(seconds_.begin(), seconds_.end(), 0.0); }

std::optional<double> Pace::steps_per_s() const {
  if (sum() <= 0) return {};
  return static_cast<double>(seconds_.size()) / sum();
}

std::optional<double> Pace::seconds_left(int64_t steps) const {
  if (!steps_per_s()) return {};
  return static_cast<double>(steps - done_) / *steps_per_s() +
         static_cast<double>(evaluations_left_) * evaluation_seconds_;
}

}  // namespace mantissa
