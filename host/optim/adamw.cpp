#include "optim/adamw.h"

#include <cmath>

namespace mantissa {
namespace {

// Constants are computed in double: 1 - beta2 in float is off by 5e-5.
template <class T>
void run(const AdamWState<T>& state, const AdamWStep& step, const DeferredScaling& scaling) {
  const auto taken = static_cast<double>(step.step);
  const T decay = static_cast<T>(1 - step.lr * step.weight_decay);
  const T step_size = static_cast<T>(step.lr / (1 - std::pow(step.beta1, taken)));
  const T inverse_correction = static_cast<T>(1 / std::sqrt(1 - std::pow(step.beta2, taken)));
  const T beta1 = static_cast<T>(step.beta1), beta2 = static_cast<T>(step.beta2), eps = static_cast<T>(step.eps);
  const T rest1 = static_cast<T>(1 - step.beta1), rest2 = static_cast<T>(1 - step.beta2);
  const ScalingIn<T> scale(scaling);
  T* __restrict p = state.parameters.data();
  const T* __restrict g = state.gradients.data();
  T* __restrict m = state.exp_avg.data();
  T* __restrict v = state.exp_avg_sq.data();
  for (size_t i = 0, n = state.parameters.size(); i < n; ++i) {
    const T gradient = scale(g[i]);
    m[i] = beta1 * m[i] + rest1 * gradient;
    v[i] = beta2 * v[i] + rest2 * gradient * gradient;
    p[i] = p[i] * decay - step_size * m[i] / (std::sqrt(v[i]) * inverse_correction + eps);
  }
}

}  // namespace

void adamw(const AdamWState<float>& state, const AdamWStep& step, const DeferredScaling& scaling) {
  run(state, step, scaling);
}
void adamw(const AdamWState<double>& state, const AdamWStep& step, const DeferredScaling& scaling) {
  run(state, step, scaling);
}

}  // namespace mantissa
