#include "optim/sgd.h"

namespace mantissa {
namespace {

template <class T>
void run(const SgdState<T>& state, const SgdStep& step, const DeferredScaling& scaling) {
  const T lr = static_cast<T>(step.lr), momentum = static_cast<T>(step.momentum),
          decay = static_cast<T>(step.weight_decay);
  const ScalingIn<T> scale(scaling);
  T* __restrict p = state.parameters.data();
  const T* __restrict g = state.gradients.data();
  T* __restrict buffer = state.momentum.data();
  for (size_t i = 0, n = state.parameters.size(); i < n; ++i) {
    T direction = scale(g[i]) + decay * p[i];
    if (momentum != 0) {
      direction = step.first ? direction : momentum * buffer[i] + direction;
      buffer[i] = direction;
    }
    p[i] -= lr * direction;
  }
}

}  // namespace

void sgd(const SgdState<float>& state, const SgdStep& step, const DeferredScaling& scaling) {
  run(state, step, scaling);
}
void sgd(const SgdState<double>& state, const SgdStep& step, const DeferredScaling& scaling) {
  run(state, step, scaling);
}

}  // namespace mantissa
