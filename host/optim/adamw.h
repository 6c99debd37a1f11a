// AdamW over a flat shard in one pass, with the gradient's scaling folded in. Knows no torch.
// Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization; the formulas of torch.optim.AdamW.
#pragma once
#include <cstdint>
#include <span>

#include "grad/scaling.h"

namespace mantissa {

struct AdamWStep {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  int64_t step = 1;  ///< taken steps, this one included
};

/// What one pass reads and writes: all of one size. Averages start at zero.
template <class T>
struct AdamWState {
  std::span<T> parameters;
  std::span<const T> gradients;
  std::span<T> exp_avg, exp_avg_sq;
};

void adamw(const AdamWState<float>& state, const AdamWStep& step, const DeferredScaling& scaling);
void adamw(const AdamWState<double>& state, const AdamWStep& step, const DeferredScaling& scaling);

}  // namespace mantissa
