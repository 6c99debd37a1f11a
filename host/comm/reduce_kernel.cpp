#include "comm/reduce_kernel.h"

#include <algorithm>

namespace mantissa {
namespace {

constexpr size_t kBlock =
    2048;  // elements: small enough to stay in the first-level cache between summing and measuring

template <class T>
void reduce_block(T* __restrict into, std::span<const T* const> parts, size_t offset, size_t size, T scale,
                  bool accumulate) {
  T sum[kBlock];
  std::copy_n(parts[0] + offset, size, sum);
  for (size_t part = 1; part < parts.size(); ++part) {
    const T* __restrict from = parts[part] + offset;
    for (size_t i = 0; i < size; ++i) sum[i] += from[i];
  }
  if (accumulate) {
    for (size_t i = 0; i < size; ++i) into[i] += scale * sum[i];
  } else {
    for (size_t i = 0; i < size; ++i) into[i] = scale * sum[i];
  }
}

template <class T>
PartialNorm reduce(std::span<T> into, std::span<const T* const> parts, const ReduceOptions& options) {
  PartialNorm norm{options.norm_type};
  for (size_t offset = 0; offset < into.size(); offset += kBlock) {
    const size_t size = std::min(kBlock, into.size() - offset);
    reduce_block(into.data() + offset, parts, offset, size, static_cast<T>(options.scale), options.accumulate);
    norm.add(measure_norm(std::span<const T>(into.subspan(offset, size)), options.norm_type));
  }
  return norm;
}

}  // namespace

PartialNorm reduce_and_measure(std::span<float> into, std::span<const float* const> parts,
                               const ReduceOptions& options) {
  return reduce(into, parts, options);
}
PartialNorm reduce_and_measure(std::span<double> into, std::span<const double* const> parts,
                               const ReduceOptions& options) {
  return reduce(into, parts, options);
}

}  // namespace mantissa
