// AdamW over a flat shard in one pass, with the gradient's scaling folded in.
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

/// What one pass reads and writes: all of one size. Averages start at zero; they and the arithmetic are in Compute<T>,
/// and a parameter is rounded to T once.
template <class T>
struct AdamWState {
  std::span<T> parameters;
  std::span<const T> gradients;
  std::span<Compute<T>> exp_avg, exp_avg_sq;
};

template <class T>
void adamw(const AdamWState<T>& state, const AdamWStep& step, const DeferredScaling& scaling);

}  // namespace mantissa
