#include "optim/sgd.h"

namespace mantissa {

template <class T>
void sgd(const SgdState<T>& state, const SgdStep& step, const DeferredScaling& scaling) {
  using C = Compute<T>;
  const C lr = static_cast<C>(step.lr), momentum = static_cast<C>(step.momentum),
          decay = static_cast<C>(step.weight_decay);
  T* __restrict p = state.parameters.data();
  const T* __restrict g = state.gradients.data();
  C* __restrict buffer = state.momentum.data();
  with_scaling<T>(scaling, [&](auto scale) {
    for (size_t i = 0, n = state.parameters.size(); i < n; ++i) {
      const C parameter = static_cast<C>(p[i]);
      C direction = static_cast<C>(scale(g[i])) + decay * parameter;
      if (momentum != 0) {
        direction = step.first ? direction : momentum * buffer[i] + direction;
        buffer[i] = direction;
      }
      p[i] = static_cast<T>(parameter - lr * direction);
    }
  });
}

#define MANTISSA_INSTANTIATE(T) template void sgd(const SgdState<T>&, const SgdStep&, const DeferredScaling&);
MANTISSA_FOR_EACH_ELEMENT(MANTISSA_INSTANTIATE)
#undef MANTISSA_INSTANTIATE

}  // namespace mantissa
