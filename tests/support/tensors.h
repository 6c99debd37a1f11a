// Comparing tensors in tests.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sub.h>

namespace mantissa::test {

/// The largest |a - b|, in float64; NaN if one is.
inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return at::max(at::abs(at::sub(a.to(at::kDouble), b.to(at::kDouble)))).item().toDouble();
}

}  // namespace mantissa::test
