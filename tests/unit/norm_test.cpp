#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "comm/partial_norm.h"
#include "comm/reduce_kernel.h"

namespace mantissa {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

template <class T>
PartialNorm measure(std::vector<T> values, double p) {
  return measure_norm(std::span<const T>(values), p);
}

TEST(PartialNorm, ThreeFour_IsFiveForEveryType) {
  EXPECT_EQ(measure<float>({3, -4}, 2).value(), 5);
  EXPECT_EQ(measure<double>({3, -4}, 2).value(), 5);
  EXPECT_EQ(measure<float>({3, -4}, 1).value(), 7);
  EXPECT_EQ(measure<float>({3, -4}, kInf).value(), 4);
  EXPECT_NEAR(measure<float>({3, -4}, 3).value(), std::cbrt(91.0), 1e-14);
  EXPECT_NEAR(measure<float>({1, 4, 9}, 0.5).value(), 36, 1e-13);
}

TEST(PartialNorm, NoElementsOrZeros_IsZero) {
  EXPECT_EQ(measure<float>({}, 2).value(), 0);
  EXPECT_EQ(measure<float>({0, -0.0f}, 3).value(), 0);
  PartialNorm empty{3};
  empty.add(PartialNorm{3});
  EXPECT_EQ(empty.value(), 0);
}

TEST(PartialNorm, WholeRangeOfDouble_NeitherOverflowsNorVanishes) {
  for (const double p : {0.5, 1.0, 2.0, 3.0, 16.0}) {
    for (const double scale : {1e300, 1e200, 1.0, 1e-200, 1e-300, 5e-324}) {
      const double want = scale * std::pow(4.0, 1 / p);
      const double got = measure<double>({scale, -scale, scale, -scale}, p).value();
      if (std::isinf(want) || want < 1e-300) continue;  // not representable, or subnormal
      EXPECT_NEAR(got / want, 1, 1e-13) << p << " " << scale;
    }
  }
  EXPECT_EQ(measure<double>({5e-324}, 2).value(), 5e-324);
  EXPECT_EQ(measure<double>({1.7e308}, 2).value(), 1.7e308);
  EXPECT_EQ(measure<float>({1e20f, 1}, 2).value(), 1e20f);
  EXPECT_NEAR(measure<float>({1e-25f, 1e-25f}, 2).value(), std::sqrt(2.0) * 1e-25f, 1e-37);
}

TEST(PartialNorm, ManyOnesAfterLargeValues_KeepCounting) {
  std::vector<float> values(1 << 22, 1.0f);
  values.insert(values.begin(), 64, 4096.0f);
  EXPECT_NEAR(measure(values, 2).value(), std::sqrt(64 * 4096.0 * 4096.0 + (1 << 22)), 1e-6);
}

TEST(PartialNorm, NanBeatsInfinityWhereverTheyStand) {
  for (const double p : {0.5, 1.0, 2.0, 3.0, kInf}) {
    for (size_t at = 0; at < 40; ++at) {
      std::vector<float> values(40, 1.0f);
      values[at] = std::numeric_limits<float>::infinity();
      EXPECT_EQ(measure(values, p).value(), kInf);
      EXPECT_EQ(measure(values, p).nonfinite, 1u);
      values[(at * 7 + 3) % 40] = std::nanf("");
      EXPECT_TRUE(std::isnan(measure(values, p).value())) << p << " " << at;
    }
  }
}

TEST(PartialNorm, PartsInAnyCut_GiveTheWhole) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> values(1000);
  for (double& value : values) value = normal(random) * std::pow(10.0, normal(random) * 20);
  for (const double p : {0.5, 1.0, 2.0, 2.5, 7.0, kInf}) {
    const double whole = measure(values, p).value();
    for (const size_t cut : {0u, 1u, 17u, 500u, 999u, 1000u}) {
      PartialNorm joint = measure(std::vector<double>(values.begin(), values.begin() + cut), p);
      joint.add(measure(std::vector<double>(values.begin() + cut, values.end()), p));
      EXPECT_NEAR(joint.value() / whole, 1, 1e-12) << p << " " << cut;
    }
  }
}

TEST(PartialNorm, PartsThatAreNotFinite_StaySo) {
  PartialNorm joint = measure<float>({1, 2}, 2);
  joint.add(measure<float>({std::numeric_limits<float>::infinity()}, 2));
  EXPECT_EQ(joint.value(), kInf);
  joint.add(measure<float>({std::nanf("")}, 2));
  joint.add(measure<float>({3}, 2));
  EXPECT_TRUE(std::isnan(joint.value()));
  EXPECT_EQ(joint.nonfinite, 2u);
}

TEST(NormType, OnlyAboveZero_IsOne) {
  for (const double p : {0.0, -1.0, -kInf, kNan}) EXPECT_FALSE(is_norm_type(p)) << p;
  for (const double p : {1e-9, 1.0, 2.0, kInf}) EXPECT_TRUE(is_norm_type(p)) << p;
}

TEST(ReduceKernel, SumOfRanks_ScaledAddedAndMeasured) {
  constexpr size_t kSize = 5001;  // more than one block, and a rest
  std::vector<float> a(kSize), b(kSize), c(kSize), into(kSize, 1.0f), want(kSize);
  for (size_t i = 0; i < kSize; ++i) {
    a[i] = static_cast<float>(i % 17);
    b[i] = -static_cast<float>(i % 5);
    c[i] = 0.5f;
  }
  const std::vector<const float*> parts{a.data(), b.data(), c.data()};
  for (const bool accumulate : {false, true}) {
    for (size_t i = 0; i < kSize; ++i) want[i] = (accumulate ? into[i] : 0.0f) + 0.25f * (a[i] + b[i] + c[i]);
    const PartialNorm norm = reduce_and_measure<float, float>(std::span<float>(into), parts, {0.25, accumulate, 2});
    EXPECT_EQ(into, want);
    EXPECT_NEAR(norm.value(), measure(want, 2).value(), 1e-12 * norm.value());
  }
}

TEST(ReduceKernel, OneRankOneBit_IsKept) {
  const std::vector<double> part{0.1, -0.0, 5e-324};
  std::vector<double> into(3, 7.0);
  reduce_and_measure<double, double>(std::span<double>(into), std::vector<const double*>{part.data()}, {1, false, 2});
  EXPECT_EQ(into, part);
}

TEST(PartialNorm, Scaled_IsThatOfScaledElements) {
  const std::vector<double> values{3, -4, 1e-3, 7e5};
  for (const double p : {0.5, 1.0, 2.0, 3.0, 16.0, kInf}) {
    for (const double factor : {0.25, 1.0 / 3, 1e-200, 1e200, 0.0}) {
      std::vector<double> scaled = values;
      for (double& x : scaled) x *= factor;
      const double want = measure_norm(std::span<const double>(scaled), p).value();
      const double got = measure_norm(std::span<const double>(values), p).scaled(factor).value();
      EXPECT_NEAR(got, want, 1e-13 * want) << p << ", " << factor;
    }
  }
}

template <class T>
void expect_norm_of_16_bits_is_exact() {
  const std::vector<T> ones(5120, T(1.0f));  // Tensor::norm() on the CPU gives 256 for them
  EXPECT_EQ(measure_norm(std::span<const T>(ones), 1).value(), 5120);
  const std::vector<T> large(100, T(60000.0f));  // and infinity for these
  EXPECT_DOUBLE_EQ(measure_norm(std::span<const T>(large), 2).value(), 10 * static_cast<double>(T(60000.0f)));
  const std::vector<T> odd{T(1.0f), std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN()};
  const PartialNorm part = measure_norm(std::span<const T>(odd), 2);
  EXPECT_TRUE(std::isnan(part.value()));
  EXPECT_EQ(part.nonfinite, 2u);
}

TEST(PartialNorm, SixteenBits_AreExact) {
  expect_norm_of_16_bits_is_exact<BFloat16>();
  expect_norm_of_16_bits_is_exact<Half>();
}

// A mean is infinite only if it is: the sum of four numbers near the largest is not.
TEST(ReduceKernel, SumThatLeavesItsType_GivesTheMean) {
  const float largest = std::numeric_limits<float>::max();
  const std::vector<float> part{largest, 1, std::numeric_limits<float>::infinity(), largest};
  const std::vector<float> other{largest, 3, 1, -largest};
  std::vector<float> into(4);
  const std::vector<const float*> parts{part.data(), other.data(), part.data(), other.data()};
  reduce_and_measure<float, float>(std::span<float>(into), parts, {0.25, false, 2});
  EXPECT_EQ(into, (std::vector<float>{largest, 2, std::numeric_limits<float>::infinity(), 0}));
  const std::vector<double> huge{std::numeric_limits<double>::max()};
  std::vector<double> mean(1);
  reduce_and_measure<double, double>(std::span<double>(mean), std::vector<const double*>{huge.data(), huge.data()},
                                     {0.5, false, 2});
  EXPECT_EQ(mean, huge);
}

// 1 + 2^-9 needs ten digits: bfloat16 on the wire loses the small one, once; float16 sums do not leave their range.
TEST(ReduceKernel, NarrowWire_RoundsTheMeanOnce) {
  const std::vector<BFloat16> one{BFloat16(1.0f)}, small{BFloat16(0x1p-9f)};
  std::vector<float> into(1);
  reduce_and_measure<float, BFloat16>(std::span<float>(into), std::vector<const BFloat16*>{one.data(), small.data()},
                                      {0.5, false, 2});
  EXPECT_EQ(into[0], 0.5f);
  const std::vector<Half> large{Half(60000.0f)};
  reduce_and_measure<float, Half>(std::span<float>(into), std::vector<const Half*>{large.data(), large.data()},
                                  {0.5, false, 2});
  EXPECT_EQ(into[0], static_cast<float>(Half(60000.0f)));
}

}  // namespace
}  // namespace mantissa
