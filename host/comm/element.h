// The number formats that shards and gradients are kept in, and the one that each is computed with. Of LibTorch only
// plain headers are used.
#pragma once
#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <type_traits>

namespace mantissa {

using BFloat16 = c10::BFloat16;
using Half = c10::Half;

/// What arithmetic on elements of type T is done in: float for 16-bit types, else T. A result is rounded to T once.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

constexpr bool is_element_type(c10::ScalarType dtype) {
  return dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kBFloat16 || dtype == c10::kHalf;
}

/// Calls f(std::type_identity<T>()) with the type T of `dtype`, which is_element_type.
template <class F>
auto with_element_type(c10::ScalarType dtype, F f) {
  switch (dtype) {
    case c10::kDouble: return f(std::type_identity<double>());
    case c10::kBFloat16: return f(std::type_identity<BFloat16>());
    case c10::kHalf: return f(std::type_identity<Half>());
    default: return f(std::type_identity<float>());
  }
}

}  // namespace mantissa

/// Expands ACTION(T) for each type of an element.
#define MANTISSA_FOR_EACH_ELEMENT(ACTION) \
  ACTION(float) ACTION(double) ACTION(::mantissa::BFloat16) ACTION(::mantissa::Half)
