// The one source of random numbers in data and text: a hash of a counter, so that each number is known by its place.
#pragma once
#include <cstdint>

namespace mantissa {

/// One value of the SplitMix64 sequence (Steele, Lea, Flood 2014): its state is `x`.
constexpr uint64_t splitmix64(uint64_t x) {
  uint64_t z = x + 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace mantissa
