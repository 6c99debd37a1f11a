// A p-norm in parts: what one rank has seen of it, small enough to travel in an exchange packet, exact over the whole
// range of the inputs.
//
// With reference r (a power of two for p = 2, else the largest magnitude) a part holds sum (|x| / r)^p, so that neither
// 1e200 squared nor 1e-200 squared leaves float64. Parts are added in a fixed order: same parts, same bits.
#pragma once
#include <cstdint>
#include <span>

#include "comm/element.h"

namespace mantissa {

struct PartialNorm {
  double norm_type = 2;  ///< p in (0, inf]
  double largest = 0;    ///< largest magnitude; inf if one is infinite, NaN if one is NaN
  double scaled_sum =
      0;  ///< sum of (|x| / reference(largest, p))^p; unused for p = inf and where largest is not finite
  uint64_t nonfinite = 0;  ///< how many elements are NaN or infinite

  /// Joins another part of the same norm_type.
  void add(const PartialNorm& other);

  /// The part of the same elements, each multiplied by `factor`, finite and >= 0, without rounding.
  PartialNorm scaled(double factor) const;

  /// The norm: 0 without elements, NaN if any element is NaN, otherwise inf if any is infinite.
  double value() const;
};

/// True for a norm type that has a norm: p in (0, inf].
bool is_norm_type(double norm_type);

/// Measures `values` with float64 sums in a fixed order. `norm_type` must be in (0, inf].
template <class T>
PartialNorm measure_norm(std::span<const T> values, double norm_type);

}  // namespace mantissa
