#include "comm/reduce_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mantissa {
namespace {

constexpr size_t kBlock =
    2048;  // elements: small enough to stay in the first-level cache between summing and measuring

// What a sum of C is taken in again when it has left C.
template <class C>
using Wider = std::conditional_t<std::is_same_v<C, float>, double, long double>;

// sum[i] = scale * sum over ranks of parts[r][offset + i]
template <class C, class Wire>
void scaled_sum(C* __restrict sum, std::span<const Wire* const> parts, size_t offset, size_t size, double scale) {
  for (size_t i = 0; i < size; ++i) sum[i] = static_cast<C>(parts[0][offset + i]);
  for (size_t part = 1; part < parts.size(); ++part) {
    const Wire* __restrict from = parts[part] + offset;
    for (size_t i = 0; i < size; ++i) sum[i] += static_cast<C>(from[i]);
  }
  const C factor = static_cast<C>(scale);
  bool all_finite = true;
  for (size_t i = 0; i < size; ++i) all_finite &= std::fabs(sum[i]) <= std::numeric_limits<C>::max();
  if (!all_finite) {
    for (size_t i = 0; i < size; ++i) {
      if (std::isfinite(sum[i])) {
        sum[i] *= factor;
        continue;
      }
      Wider<C> wide = 0;
      for (const Wire* part : parts) wide += static_cast<Wider<C>>(static_cast<C>(part[offset + i]));
      sum[i] = static_cast<C>(wide * static_cast<Wider<C>>(scale));
    }
    return;
  }
  for (size_t i = 0; i < size; ++i) sum[i] *= factor;
}

// As a rank would read it from the wire.
template <class C, class Wire>
C through(C value) {
  return static_cast<C>(static_cast<Wire>(value));
}

}  // namespace

template <class T, class Wire>
PartialNorm reduce_and_measure(std::span<T> into, std::span<const Wire* const> parts, const ReduceOptions& options) {
  using C = std::common_type_t<Compute<T>, Compute<Wire>>;
  PartialNorm norm{options.norm_type};
  C sum[kBlock];
  for (size_t offset = 0; offset < into.size(); offset += kBlock) {
    const size_t size = std::min(kBlock, into.size() - offset);
    scaled_sum(sum, parts, offset, size, options.scale);
    T* __restrict block = into.data() + offset;
    if (options.accumulate) {
      for (size_t i = 0; i < size; ++i) block[i] = static_cast<T>(static_cast<C>(block[i]) + through<C, Wire>(sum[i]));
    } else {
      for (size_t i = 0; i < size; ++i) block[i] = static_cast<T>(through<C, Wire>(sum[i]));
    }
    norm.add(measure_norm(std::span<const T>(into.subspan(offset, size)), options.norm_type));
  }
  return norm;
}

template <class Wire>
void reduce_parts(std::span<Wire> into, std::span<const Wire* const> parts, double scale) {
  Compute<Wire> sum[kBlock];
  for (size_t offset = 0; offset < into.size(); offset += kBlock) {
    const size_t size = std::min(kBlock, into.size() - offset);
    scaled_sum(sum, parts, offset, size, scale);
    for (size_t i = 0; i < size; ++i) into[offset + i] = static_cast<Wire>(sum[i]);
  }
}

#define MANTISSA_INSTANTIATE_PAIR(T, Wire) \
  template PartialNorm reduce_and_measure(std::span<T>, std::span<const Wire* const>, const ReduceOptions&);
#define MANTISSA_INSTANTIATE(Wire)          \
  MANTISSA_INSTANTIATE_PAIR(float, Wire)    \
  MANTISSA_INSTANTIATE_PAIR(double, Wire)   \
  MANTISSA_INSTANTIATE_PAIR(BFloat16, Wire) \
  MANTISSA_INSTANTIATE_PAIR(Half, Wire)     \
  template void reduce_parts(std::span<Wire>, std::span<const Wire* const>, double);
MANTISSA_FOR_EACH_ELEMENT(MANTISSA_INSTANTIATE)
#undef MANTISSA_INSTANTIATE
#undef MANTISSA_INSTANTIATE_PAIR

}  // namespace mantissa
