#include "grad/scaling.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace mantissa {
namespace {

template <class T>
T toward_zero(double value) {
  const T rounded = static_cast<T>(value);
  return std::isfinite(value) && static_cast<double>(rounded) > value ? std::nextafter(rounded, T{0}) : rounded;
}

template <class T>
void apply_in(std::span<T> gradients, const DeferredScaling& scaling) {
  if (scaling.is_identity()) return;
  const ScalingIn<T> scale(scaling);
  for (T& gradient : gradients) gradient = scale(gradient);
}

}  // namespace

double clip_coef(double max_norm, double total_norm) {
  const double coef = max_norm / (total_norm + 1e-6);
  return coef > 1 ? 1 : coef;
}

void DeferredScaling::scale(double s) {
  factor *= s;
  limit *= s;
}

void DeferredScaling::clamp(double v) { limit = std::min(limit, std::fabs(v)); }

template <class T>
ScalingIn<T>::ScalingIn(const DeferredScaling& scaling)
    : factor(static_cast<T>(scaling.factor)), limit(toward_zero<T>(scaling.limit)) {}

template struct ScalingIn<float>;
template struct ScalingIn<double>;

void apply(std::span<float> gradients, const DeferredScaling& scaling) { apply_in(gradients, scaling); }
void apply(std::span<double> gradients, const DeferredScaling& scaling) { apply_in(gradients, scaling); }

}  // namespace mantissa
