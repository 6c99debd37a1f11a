// The learning rate of a step. Knows no torch.
#pragma once
#include <cstdint>

#include "config/config.h"

namespace mantissa {

/// The learning rate at taken step k, from 0, of a run of `steps`: lr * (k + 1) / warmup while k < warmup; then, with
/// t = (k - warmup) / (steps - warmup), constant lr, linear lr * (1 - (1 - floor) t), or
/// cosine lr * (floor + (1 - floor)(1 + cos(pi t)) / 2).
double learning_rate(const ScheduleConfig& schedule, double lr, int64_t k, int64_t steps);

}  // namespace mantissa
