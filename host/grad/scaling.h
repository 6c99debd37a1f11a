// The arithmetic of unscaling and clipping: which factor, which limit, and how they reach an element. Knows no ranks.
//
// Gradients are not multiplied when they are unscaled or clipped. What was asked is remembered as
// g -> clamp((g * unscale) * factor, -limit, limit) and applied in the optimizer's one pass, or by apply() where
// somebody wants to see the result before. Each of the two products is rounded to the gradient's type, as it would be
// by a loop of its own: unscaling, one factor and one clamp give the same bits either way.
#pragma once
#include <limits>
#include <span>

#include "comm/element.h"

namespace mantissa {

/// min(1, max_norm / (total_norm + 1e-6)) in float64, as torch.nn.utils.clip_grad_norm_ has it. A NaN norm gives NaN.
double clip_coef(double max_norm, double total_norm);

struct DeferredScaling {
  double factor = 1;                                       ///< finite, >= 0
  double limit = std::numeric_limits<double>::infinity();  ///< >= 0
  double unscale = 1;                                      ///< 1 / loss_scale; finite, > 0; comes before the others

  bool is_identity() const { return unscale == 1 && factor == 1 && !clamps(); }
  bool clamps() const { return limit != std::numeric_limits<double>::infinity(); }
  /// What a norm is multiplied by, where nothing is clamped.
  double product() const { return unscale * factor; }
  /// True if scale(s) can be carried: the factor stays a number > 0, so that neither inf * 0 nor a lost s comes up.
  bool can_scale(double s) const;
  /// Afterwards multiply by s > 0, finite.
  void scale(double s);
  /// Afterwards clamp to [-v, v], v >= 0.
  void clamp(double v);
};

/// DeferredScaling in the gradients' own type T. The factor is rounded to Compute<T>, the limit toward zero to T; a
/// factor of 1 leaves the bits alone; NaN stays NaN. kUnscales: whether scaling.unscale differs from 1.
template <class T, bool kUnscales>
class ScalingIn {
 public:
  explicit ScalingIn(const DeferredScaling& scaling);
  T operator()(T gradient) const {
    if constexpr (kUnscales) gradient = static_cast<T>(static_cast<double>(gradient) * unscale_);
    const T scaled = static_cast<T>(static_cast<Compute<T>>(gradient) * factor_);
    const T below = scaled < -limit_ ? -limit_ : scaled;  // comparisons with NaN are false, so it passes
    return below > limit_ ? limit_ : below;
  }

 private:
  double unscale_;
  Compute<T> factor_;
  T limit_;
};

/// Calls f with the ScalingIn<T> that does what `scaling` says.
template <class T, class F>
void with_scaling(const DeferredScaling& scaling, F f) {
  if (scaling.unscale == 1) return f(ScalingIn<T, false>(scaling));
  f(ScalingIn<T, true>(scaling));
}

/// Applies `scaling` to every element in place.
template <class T>
void apply(std::span<T> gradients, const DeferredScaling& scaling);

}  // namespace mantissa
