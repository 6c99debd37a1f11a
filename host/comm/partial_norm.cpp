#include "comm/partial_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace mantissa {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kLanes = 16;  // independent accumulators: fixed order, and room for the vector units

double reference(double largest, double norm_type) {
  if (norm_type != 2 || largest == 0) return largest;
  return std::ldexp(1.0, std::ilogb(largest));  // exact to divide and multiply by
}

// (from / to)^p for two references of one norm type.
double rescale(double from, double to, double norm_type) {
  if (from == to) return 1;
  const double ratio = from / to;
  return norm_type == 2 ? ratio * ratio : std::pow(ratio, norm_type);
}

template <class T>
struct Magnitudes {
  T largest;
  uint64_t nonfinite;
};

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

// Bits of a magnitude order like the magnitudes themselves, with infinity above all numbers and NaN above infinity.
template <class T>
Magnitudes<T> magnitudes(std::span<const T> values) {
  using Bits = BitsOf<T>;
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max() / 2;
  const Bits infinite = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  Bits largest = 0;
  uint64_t nonfinite = 0;
  for (const T value : values) {
    const Bits bits = std::bit_cast<Bits>(value) & kMagnitude;
    largest = bits > largest ? bits : largest;
    nonfinite += bits >= infinite;
  }
  return {std::bit_cast<T>(largest), nonfinite};
}

// Sum over f(x) in float64 with kLanes accumulators.
template <class T, class F>
double lane_sum(std::span<const T> values, F f) {
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += f(static_cast<double>(values[i + lane]));
  }
  for (size_t lane = 0; i < values.size(); ++i, ++lane) lanes[lane] += f(static_cast<double>(values[i]));
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

template <class T>
PartialNorm measure(std::span<const T> values, double norm_type) {
  const Magnitudes<T> found = magnitudes(values);
  PartialNorm part{norm_type, static_cast<double>(found.largest), 0, found.nonfinite};
  if (!std::isfinite(part.largest) || part.largest == 0 || norm_type == kInfinity) return part;
  const double unit = reference(part.largest, norm_type);
  if (norm_type == 2 && !std::is_same_v<T, double>) {  // no square of a float leaves float64
    part.scaled_sum = lane_sum(values, [](double x) { return x * x; }) / (unit * unit);
  } else if (norm_type == 2) {
    part.scaled_sum = lane_sum(values, [=](double x) { return (x / unit) * (x / unit); });
  } else if (norm_type == 1) {
    part.scaled_sum = lane_sum(values, [=](double x) { return std::fabs(x) / unit; });
  } else {
    part.scaled_sum = lane_sum(values, [=](double x) { return std::pow(std::fabs(x) / unit, norm_type); });
  }
  return part;
}

}  // namespace

bool is_norm_type(double norm_type) { return norm_type > 0; }

void PartialNorm::add(const PartialNorm& other) {
  nonfinite += other.nonfinite;
  if (std::isnan(largest) || std::isnan(other.largest)) {
    largest = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  const double joint = std::max(largest, other.largest);
  if (std::isfinite(joint) && joint > 0 && norm_type != kInfinity) {
    const double unit = reference(joint, norm_type);
    double sum = 0;
    if (largest > 0) sum += scaled_sum * rescale(reference(largest, norm_type), unit, norm_type);
    if (other.largest > 0) sum += other.scaled_sum * rescale(reference(other.largest, norm_type), unit, norm_type);
    scaled_sum = sum;
  }
  largest = joint;
}

PartialNorm PartialNorm::scaled(double factor) const {
  if (factor == 1 || !std::isfinite(largest) || largest == 0) return *this;
  PartialNorm part = *this;
  part.largest = largest * factor;
  if (part.largest == 0 || norm_type == kInfinity) return part;
  part.scaled_sum =
      scaled_sum * rescale(reference(largest, norm_type) * factor, reference(part.largest, norm_type), norm_type);
  return part;
}

double PartialNorm::value() const {
  if (!std::isfinite(largest) || largest == 0 || norm_type == kInfinity) return largest;
  const double unit = reference(largest, norm_type);
  if (norm_type == 2) return std::sqrt(scaled_sum) * unit;
  if (norm_type == 1) return scaled_sum * unit;
  return std::pow(scaled_sum, 1 / norm_type) * unit;
}

template <class T>
PartialNorm measure_norm(std::span<const T> values, double norm_type) {
  return measure(values, norm_type);
}

#define MANTISSA_INSTANTIATE(T) template PartialNorm measure_norm(std::span<const T>, double);
MANTISSA_FOR_EACH_ELEMENT(MANTISSA_INSTANTIATE)
#undef MANTISSA_INSTANTIATE

}  // namespace mantissa
