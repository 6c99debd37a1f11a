#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "grad/scaling.h"

namespace mantissa {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<float> scaled(std::vector<float> values, const DeferredScaling& scaling) {
  apply(std::span<float>(values), scaling);
  return values;
}

TEST(ClipCoef, Formula_IsPyTorchs) {
  EXPECT_EQ(clip_coef(1, 5), 1 / (5 + 1e-6));
  EXPECT_EQ(clip_coef(5, 5), 5 / (5 + 1e-6));
  EXPECT_EQ(clip_coef(1, 0.5), 1);
  EXPECT_EQ(clip_coef(0, 5), 0);
  EXPECT_EQ(clip_coef(kInf, 5), 1);
  EXPECT_EQ(clip_coef(0, 0), 0);
  EXPECT_TRUE(std::isnan(clip_coef(1, std::nan(""))));
}

TEST(DeferredScaling, FactorOfOne_LeavesEveryBit) {
  const std::vector<float> odd{-0.0f, 1e-45f, std::nanf("7"), std::numeric_limits<float>::infinity()};
  const std::vector<float> same = scaled(odd, {});
  EXPECT_EQ(std::memcmp(odd.data(), same.data(), odd.size() * sizeof(float)), 0);
}

TEST(DeferredScaling, FactorIsRoundedToFloatOnce) {
  EXPECT_EQ(scaled({3, 4}, {0.199999960000008, kInf}), (std::vector<float>{0.5999999046325684f, 0.7999998331069946f}));
}

TEST(DeferredScaling, LimitIsRoundedTowardZero) {
  const double limit = 0.1;  // float(0.1) is above it
  const std::vector<float> clamped = scaled({1, -1, 0.05f}, {1, limit});
  EXPECT_LE(static_cast<double>(clamped[0]), limit);
  EXPECT_EQ(clamped[0], std::nextafter(0.1f, 0.0f));
  EXPECT_EQ(clamped[1], -clamped[0]);
  EXPECT_EQ(clamped[2], 0.05f);
}

TEST(DeferredScaling, NanStaysNanAndInfinityIsClamped) {
  const std::vector<float> values =
      scaled({std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}, {1, 2});
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], 2);
  EXPECT_EQ(values[2], -2);
}

TEST(DeferredScaling, ZeroLimit_MakesNumbersZero) {
  EXPECT_EQ(scaled({5, -5, 0}, {1, 0.0}), (std::vector<float>{0, 0, 0}));
}

TEST(DeferredScaling, ScaleAfterClamp_ScalesTheLimitToo) {
  DeferredScaling scaling;
  scaling.clamp(2);
  scaling.scale(0.5);
  EXPECT_EQ(scaled({8, 1}, scaling), (std::vector<float>{1, 0.5f}));
  scaling.clamp(-0.0);
  EXPECT_EQ(scaling.limit, 0);
}

// As a loop of its own would do it: each product rounded to the gradient's type.
TEST(DeferredScaling, UnscaleThenFactor_RoundsAsTwoPassesDo) {
  const std::vector<float> gradients{3.1f, -7e5f, 1e-30f, 12345.678f};
  DeferredScaling both{.unscale = 1.0 / 3};
  both.scale(0.1);
  std::vector<float> want = gradients;
  for (float& g : want) g = static_cast<float>(static_cast<double>(g) / 3) * 0.1f;
  EXPECT_EQ(scaled(gradients, both), want);
  EXPECT_EQ(scaled(scaled(gradients, {.unscale = 1.0 / 3}), {0.1}), want) << "in two calls";
}

// 1 / 2^127 is a denormal float: unscaling goes by float64.
TEST(DeferredScaling, UnscaleByTheLargestScale_IsExact) {
  EXPECT_EQ(scaled({0x1p120f, -0x1p127f}, {.unscale = 0x1p-127}), (std::vector<float>{0x1p-7f, -1}));
}

template <class T>
void expect_16_bits_follow_the_contract() {
  const std::vector<double> values{3, -4, 0.1, 250.5, -0.0, 6e-5};
  const double coef = 0.199999960000008;
  std::vector<T> gradients, want;
  for (const double value : values) gradients.push_back(static_cast<T>(static_cast<float>(value)));
  for (const T g : gradients) want.push_back(static_cast<T>(static_cast<float>(g) * static_cast<float>(coef)));
  apply(std::span<T>(gradients), {coef});
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(gradients[i].x, want[i].x) << values[i];

  std::vector<T> clamped{T(1.0f), T(-1.0f), T(0.05f), std::numeric_limits<T>::quiet_NaN(),
                         std::numeric_limits<T>::infinity()};
  apply(std::span<T>(clamped), {1, 0.1});
  EXPECT_LE(static_cast<double>(clamped[0]), 0.1);
  T above = clamped[0];
  ++above.x;
  EXPECT_GT(static_cast<double>(above), 0.1) << "not the largest that is allowed";
  EXPECT_EQ(clamped[1].x, (-clamped[0]).x);
  EXPECT_TRUE(std::isnan(static_cast<float>(clamped[3])));
  EXPECT_EQ(clamped[4].x, clamped[0].x);
}

TEST(DeferredScaling, SixteenBits_AreScaledInFloat32AndRoundedOnce) {
  expect_16_bits_follow_the_contract<BFloat16>();
  expect_16_bits_follow_the_contract<Half>();
}

TEST(DeferredScaling, LimitBelowTheSmallestNumber_IsZero) {
  std::vector<Half> gradients{Half(1.0f), Half(-1.0f)};
  apply(std::span<Half>(gradients), {1, 1e-12});
  for (const Half g : gradients) EXPECT_EQ(static_cast<float>(g), 0);
}

TEST(DeferredScaling, FactorThatFloatCannotHold_IsNotCarried) {
  EXPECT_FALSE(DeferredScaling{}.can_scale(1e300));
  EXPECT_FALSE((DeferredScaling{1e30}.can_scale(1e30)));
  EXPECT_FALSE((DeferredScaling{1e-30}.can_scale(1e-30)));
  EXPECT_TRUE((DeferredScaling{1e-30}.can_scale(1e30)));
}

}  // namespace
}  // namespace mantissa
