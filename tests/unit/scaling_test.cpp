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

}  // namespace
}  // namespace mantissa
