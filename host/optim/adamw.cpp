#include "optim/adamw.h"

#include <cmath>

namespace mantissa {

// Constants are computed in double: 1 - beta2 in float is off by 5e-5.
template <class T>
void adamw(const AdamWState<T>& state, const AdamWStep& step, const DeferredScaling& scaling) {
  using C = Compute<T>;
  const auto taken = static_cast<double>(step.step);
  const C decay = static_cast<C>(1 - step.lr * step.weight_decay);
  const C step_size = static_cast<C>(step.lr / (1 - std::pow(step.beta1, taken)));
  const C inverse_correction = static_cast<C>(1 / std::sqrt(1 - std::pow(step.beta2, taken)));
  const C beta1 = static_cast<C>(step.beta1), beta2 = static_cast<C>(step.beta2), eps = static_cast<C>(step.eps);
  const C rest1 = static_cast<C>(1 - step.beta1), rest2 = static_cast<C>(1 - step.beta2);
  T* __restrict p = state.parameters.data();
  const T* __restrict g = state.gradients.data();
  C* __restrict m = state.exp_avg.data();
  C* __restrict v = state.exp_avg_sq.data();
  with_scaling<T>(scaling, [&](auto scale) {
    for (size_t i = 0, n = state.parameters.size(); i < n; ++i) {
      const C gradient = static_cast<C>(scale(g[i]));
      m[i] = beta1 * m[i] + rest1 * gradient;
      v[i] = beta2 * v[i] + rest2 * gradient * gradient;
      p[i] = static_cast<T>(static_cast<C>(p[i]) * decay -
                            step_size * m[i] / (std::sqrt(v[i]) * inverse_correction + eps));
    }
  });
}

#define MANTISSA_INSTANTIATE(T) template void adamw(const AdamWState<T>&, const AdamWStep&, const DeferredScaling&);
MANTISSA_FOR_EACH_ELEMENT(MANTISSA_INSTANTIATE)
#undef MANTISSA_INSTANTIATE

}  // namespace mantissa
