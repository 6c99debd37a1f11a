// The arithmetic of amp's dynamic loss scaling.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "loss_scaler.h"

namespace {

void update(LossScaler& scaler, int times, bool found_inf) {
  for (int i = 0; i < times; ++i) scaler.update(found_inf);
}

TEST(LossScaler, GrowsAtEachInterval_AndStartsAgainAfterAnOverflow) {
  LossScaler scaler({.init_scale = 8, .growth_interval = 3});
  update(scaler, 2, false);
  EXPECT_EQ(scaler.scale(), 8);
  update(scaler, 1, false);
  EXPECT_EQ(scaler.scale(), 16);
  EXPECT_EQ(scaler.state().tracker, 0);
  update(scaler, 2, false);
  update(scaler, 1, true);
  EXPECT_EQ(scaler.scale(), 8);
  update(scaler, 2, false);
  EXPECT_EQ(scaler.scale(), 8) << "an overflow sets the count back";
  update(scaler, 1, false);
  EXPECT_EQ(scaler.scale(), 16);
  EXPECT_EQ(scaler.state().skipped, 1);
}

TEST(LossScaler, DoesNotGrowPastFloat32) {
  LossScaler scaler({.init_scale = 0x1p127, .growth_interval = 1});
  update(scaler, 3, false);
  EXPECT_EQ(scaler.scale(), 0x1p127);
  EXPECT_EQ(scaler.state().tracker, 0);
}

TEST(LossScaler, DoesNotFallBelowItsFloor) {
  LossScaler scaler({.init_scale = 4, .min_scale = 1});
  update(scaler, 10, true);
  EXPECT_EQ(scaler.scale(), 1);
  LossScaler lower({.init_scale = 1, .min_scale = 0x1p-10});
  update(lower, 20, true);
  EXPECT_EQ(lower.scale(), 0x1p-10);
}

TEST(LossScaler, ScaleIsAlwaysAFloat32) {
  LossScaler scaler(
      {.init_scale = 0.1, .growth_factor = 1.7, .backoff_factor = 0.3, .growth_interval = 2, .min_scale = 1e-30});
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(static_cast<double>(static_cast<float>(scaler.scale())), scaler.scale()) << i;
    scaler.update(i % 7 == 0);
  }
}

TEST(LossScaler, RestoredState_GoesOnAsIfNothingHadHappened) {
  const LossScalerOptions options{.init_scale = 1024, .growth_interval = 5};
  LossScaler one(options);
  update(one, 3, false);
  update(one, 1, true);
  update(one, 4, false);
  LossScaler other(options);
  ASSERT_TRUE(other.restore(one.state()));
  update(one, 1, false);
  update(other, 1, false);
  EXPECT_EQ(one.scale(), other.scale());
  EXPECT_EQ(one.scale(), 1024) << "the growth that was due";
}

TEST(LossScaler, StateThatCannotBe_IsRefusedAndChangesNothing) {
  LossScaler scaler({.init_scale = 64});
  for (const double scale : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e300})
    EXPECT_FALSE(scaler.restore({scale, 0, 0})) << scale;
  EXPECT_FALSE(scaler.restore({64, -1, 0}));
  EXPECT_FALSE(scaler.restore({64, 0, -1}));
  EXPECT_EQ(scaler.scale(), 64);
}

}  // namespace
