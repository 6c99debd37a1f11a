// The arithmetic of clipping: which factor, which limit, and how they reach an element. Knows no torch and no ranks.
//
// Gradients are not multiplied when they are clipped. What was asked is remembered as g -> clamp(g * factor, -limit,
// limit) and applied in the optimizer's one pass, or by apply() where somebody wants to see the result before.
#pragma once
#include <limits>
#include <span>

namespace mantissa {

/// min(1, max_norm / (total_norm + 1e-6)) in float64, as torch.nn.utils.clip_grad_norm_ has it. A NaN norm gives NaN.
double clip_coef(double max_norm, double total_norm);

struct DeferredScaling {
  double factor = 1;                                       ///< finite, >= 0
  double limit = std::numeric_limits<double>::infinity();  ///< >= 0

  bool is_identity() const { return factor == 1 && limit == std::numeric_limits<double>::infinity(); }
  /// Afterwards multiply by s > 0, finite.
  void scale(double s);
  /// Afterwards clamp to [-v, v], v >= 0.
  void clamp(double v);
};

/// DeferredScaling in the gradients' own type. For float the factor is rounded to nearest, the limit toward zero; a
/// factor of 1 leaves the bits alone; NaN stays NaN.
template <class T>
struct ScalingIn {
  explicit ScalingIn(const DeferredScaling& scaling);
  T operator()(T gradient) const {
    const T scaled = gradient * factor;
    const T below = scaled < -limit ? -limit : scaled;  // comparisons with NaN are false, so it passes
    return below > limit ? limit : below;
  }
  T factor, limit;
};

/// Applies `scaling` to every element in place.
void apply(std::span<float> gradients, const DeferredScaling& scaling);
void apply(std::span<double> gradients, const DeferredScaling& scaling);

}  // namespace mantissa
