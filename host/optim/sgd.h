// SGD with momentum over a flat shard in one pass, with the gradient's scaling folded in.
// Source: the formulas of torch.optim.SGD (dampening 0, no Nesterov).
#pragma once
#include <span>

#include "grad/scaling.h"

namespace mantissa {

struct SgdStep {
  double lr = 1e-3, momentum = 0, weight_decay = 0;
  bool first = true;  ///< the momentum buffer starts as the gradient
};

/// All of one size; `momentum` is empty if SgdStep::momentum is 0. Arithmetic is in Compute<T>: the learning rate is
/// rounded to it once, and a parameter to T once.
template <class T>
struct SgdState {
  std::span<T> parameters;
  std::span<const T> gradients;
  std::span<Compute<T>> momentum;
};

template <class T>
void sgd(const SgdState<T>& state, const SgdStep& step, const DeferredScaling& scaling);

}  // namespace mantissa
