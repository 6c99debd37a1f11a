#include "optim/schedule.h"

#include <cmath>
#include <numbers>

namespace mantissa {

double learning_rate(const ScheduleConfig& schedule, double lr, int64_t k, int64_t steps) {
  if (k < schedule.warmup) return lr * static_cast<double>(k + 1) / static_cast<double>(schedule.warmup);
  const double t = static_cast<double>(k - schedule.warmup) / static_cast<double>(steps - schedule.warmup);
  switch (schedule.kind) {
    case ScheduleKind::constant: return lr;
    case ScheduleKind::linear: return lr * (1 - (1 - schedule.floor) * t);
    case ScheduleKind::cosine:
      return lr * (schedule.floor + (1 - schedule.floor) * (1 + std::cos(std::numbers::pi * t)) / 2);
  }
  return lr;
}

}  // namespace mantissa
