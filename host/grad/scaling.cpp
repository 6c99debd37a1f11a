#include "grad/scaling.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace mantissa {
namespace {

// The next one towards zero; `value` is positive and finite.
template <class T>
T next_below(T value) {
  if constexpr (sizeof(T) == 2) {
    return T(static_cast<uint16_t>(value.x - 1), T::from_bits());
  } else {
    return std::nextafter(value, T{0});
  }
}

template <class T>
T toward_zero(double value) {
  const T largest = std::numeric_limits<T>::max();
  if (std::isinf(value)) return std::numeric_limits<T>::infinity();
  if (value >= static_cast<double>(largest)) return largest;
  const T rounded = static_cast<T>(value);
  return static_cast<double>(rounded) > value ? next_below(rounded) : rounded;
}

}  // namespace

double clip_coef(double max_norm, double total_norm) {
  const double coef = max_norm / (total_norm + 1e-6);
  return coef > 1 ? 1 : coef;
}

bool DeferredScaling::can_scale(double s) const {
  constexpr double kLargest = std::numeric_limits<float>::max(), kSmallest = std::numeric_limits<float>::min();
  return factor * s <= kLargest && factor * s >= kSmallest;
}

void DeferredScaling::scale(double s) {
  factor *= s;
  limit *= s;
}

void DeferredScaling::clamp(double v) { limit = std::min(limit, std::fabs(v)); }

template <class T, bool kUnscales>
ScalingIn<T, kUnscales>::ScalingIn(const DeferredScaling& scaling)
    : unscale_(scaling.unscale),
      factor_(static_cast<Compute<T>>(scaling.factor)),
      limit_(toward_zero<T>(scaling.limit)) {}

template <class T>
void apply(std::span<T> gradients, const DeferredScaling& scaling) {
  if (scaling.is_identity()) return;
  with_scaling<T>(scaling, [&](auto scale) {
    for (T& gradient : gradients) gradient = scale(gradient);
  });
}

#define MANTISSA_INSTANTIATE(T)       \
  template class ScalingIn<T, false>; \
  template class ScalingIn<T, true>;  \
  template void apply(std::span<T>, const DeferredScaling&);
MANTISSA_FOR_EACH_ELEMENT(MANTISSA_INSTANTIATE)
#undef MANTISSA_INSTANTIATE

}  // namespace mantissa
