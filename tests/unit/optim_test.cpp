// Golden numbers: torch.optim.AdamW(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1) and
// torch.optim.SGD(lr=0.1, momentum=0.9, weight_decay=0.01) of PyTorch 2.13, five steps in float64.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "optim/adamw.h"
#include "optim/decay.h"
#include "optim/schedule.h"
#include "optim/sgd.h"

namespace mantissa {
namespace {

template <class T>
std::vector<T> start() {
  return {T(0.5), T(-1.25), T(3), T(0), T(1e-3)};
}

template <class T>
std::vector<T> gradient(int step, double factor = 1) {
  return {T(0.1 * (step + 1) * factor), T(-2 * factor), T(1e-4 * step * factor), T(0), T(1e3 * factor)};
}

template <class T>
std::vector<T> five_steps_of_adamw(const DeferredScaling& scaling, double gradient_factor = 1) {
  std::vector<T> p = start<T>(), m(5), v(5);
  for (int k = 0; k < 5; ++k) {
    const std::vector<T> g = gradient<T>(k, gradient_factor);
    adamw(AdamWState<T>{p, g, m, v}, {1e-2, 0.9, 0.95, 1e-8, 0.1, k + 1}, scaling);
  }
  return p;
}

template <class T>
std::vector<T> five_steps_of_sgd(const DeferredScaling& scaling, double gradient_factor = 1) {
  std::vector<T> p = start<T>(), buffer(5);
  for (int k = 0; k < 5; ++k) {
    const std::vector<T> g = gradient<T>(k, gradient_factor);
    sgd(SgdState<T>{p, g, buffer}, {0.1, 0.9, 0.01, k == 0}, scaling);
  }
  return p;
}

constexpr std::array<double, 5> kAdamW{0.44975197026706476, -1.1938623878057395, 2.952392603171897, 0.0,
                                       -0.048905089959506};
constexpr std::array<double, 5> kSgd{0.17691846667028946, 1.3890153298444516, 2.960475247268807, 0.0,
                                     -1311.3109782532197};

template <class T>
void expect_near(const std::vector<T>& got, const std::array<double, 5>& want, double relative) {
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], relative * std::fabs(want[i])) << i;
}

TEST(AdamW, FiveSteps_EqualPyTorch) {
  expect_near(five_steps_of_adamw<double>({}), kAdamW, 1e-13);
  expect_near(five_steps_of_adamw<float>({}), kAdamW, 1e-6);
}

TEST(AdamW, ScalingInThePass_EqualsScaledGradients) {
  EXPECT_EQ(five_steps_of_adamw<double>({0.25, std::numeric_limits<double>::infinity()}),
            five_steps_of_adamw<double>({}, 0.25));
  EXPECT_NE(five_steps_of_adamw<double>({1, 0.05}), five_steps_of_adamw<double>({}));
}

// Deferred and eager: the optimizer applies the scaling, or finds gradients that it was applied to.
template <class T>
void expect_deferred_equals_eager_to_the_bit() {
  using C = Compute<T>;
  for (const DeferredScaling& scaling :
       {DeferredScaling{0.1}, DeferredScaling{.unscale = 1.0 / 3}, DeferredScaling{0.7, 0.01, 1.0 / 1024},
        DeferredScaling{1, 0.3}, DeferredScaling{0}}) {
    std::vector<T> deferred{T(0.5f), T(-1.25f), T(3.0f), T(0.0f), T(1e-3f)}, eager = deferred;
    std::vector<T> sgd_deferred = deferred, sgd_eager = deferred;
    std::vector<C> m(5), v(5), m2(5), v2(5), b(5), b2(5);
    for (int k = 0; k < 4; ++k) {
      std::vector<T> g;
      for (int i = 0; i < 5; ++i) g.push_back(T(static_cast<float>(std::sin(3.7 * (5 * k + i)))));
      std::vector<T> scaled = g;
      apply(std::span<T>(scaled), scaling);
      const AdamWStep step{1e-2, 0.9, 0.95, 1e-8, 0.1, k + 1};
      adamw<T>({deferred, g, m, v}, step, scaling);
      adamw<T>({eager, scaled, m2, v2}, step, {});
      sgd<T>({sgd_deferred, g, b}, {0.1, 0.9, 0.01, k == 0}, scaling);
      sgd<T>({sgd_eager, scaled, b2}, {0.1, 0.9, 0.01, k == 0}, {});
    }
    EXPECT_EQ(std::memcmp(deferred.data(), eager.data(), 5 * sizeof(T)), 0);
    EXPECT_EQ(std::memcmp(m.data(), m2.data(), 5 * sizeof(C)), 0);
    EXPECT_EQ(std::memcmp(v.data(), v2.data(), 5 * sizeof(C)), 0);
    EXPECT_EQ(std::memcmp(sgd_deferred.data(), sgd_eager.data(), 5 * sizeof(T)), 0);
  }
}

TEST(DeferredScaling, InTheOptimizersPass_EqualsEagerToTheBit) {
  expect_deferred_equals_eager_to_the_bit<float>();
  expect_deferred_equals_eager_to_the_bit<double>();
  expect_deferred_equals_eager_to_the_bit<BFloat16>();
  expect_deferred_equals_eager_to_the_bit<Half>();
}

TEST(Sgd, FiveSteps_EqualPyTorch) {
  expect_near(five_steps_of_sgd<double>({}), kSgd, 1e-14);
  expect_near(five_steps_of_sgd<float>({}), kSgd, 1e-6);
}

TEST(Sgd, ScalingInThePass_EqualsScaledGradients) {
  EXPECT_EQ(five_steps_of_sgd<double>({0.5, std::numeric_limits<double>::infinity()}),
            five_steps_of_sgd<double>({}, 0.5));
}

// Whatever the ranks, an element decays as its parameter does; padding is 0 and may decay or not.
TEST(DecayStretches, OfEveryRank_GiveEachElementTheDecayOfItsParameter) {
  const std::vector<int64_t> numels{40, 5, 0, 17, 33, 1, 64, 3};
  const std::vector<double> decays{0.1, 0, 0.1, 0, 0, 0.1, 0.1, 0};
  for (const bool replicated : {false, true}) {
    for (const int world_size : {1, 2, 3, 5, 9}) {
      const FlatLayout layout(numels, world_size, replicated);
      for (int rank = 0; rank < world_size; ++rank) {
        const std::vector<Piece> pieces = layout.pieces(rank);
        const auto stretches = decay_stretches(pieces, layout.shard_numel(), decays);
        std::vector<double> of_element;
        for (const DecayStretch& stretch : stretches) {
          EXPECT_EQ(stretch.begin, static_cast<int64_t>(of_element.size())) << "a gap, or an overlap";
          of_element.resize(static_cast<size_t>(stretch.end), stretch.weight_decay);
        }
        if (!pieces.empty()) EXPECT_EQ(static_cast<int64_t>(of_element.size()), layout.shard_numel());
        for (const Piece& piece : pieces) {
          for (int64_t i = 0; i < piece.numel; ++i) {
            EXPECT_EQ(of_element.at(static_cast<size_t>(piece.shard_offset + i)), decays[piece.parameter]);
          }
        }
      }
    }
  }
}

TEST(DecayStretches, OfOneDecay_AreOne) {
  const FlatLayout layout({40, 5, 17}, 2, false);
  const auto stretches = decay_stretches(layout.pieces(0), layout.shard_numel(), {0.1, 0.1, 0.1});
  ASSERT_EQ(stretches.size(), 1u);
  EXPECT_EQ(stretches[0].end, layout.shard_numel());
  EXPECT_TRUE(decay_stretches({}, 16, {}).empty()) << "a shard of padding alone";
}

TEST(Schedule, Warmup_RisesToLr) {
  ScheduleConfig config;
  config.warmup = 4;
  EXPECT_EQ(learning_rate(config, 1, 0, 100), 0.25);
  EXPECT_EQ(learning_rate(config, 1, 3, 100), 1);
  EXPECT_EQ(learning_rate(config, 1, 50, 100), 1);
}

TEST(Schedule, LinearAndCosine_FollowTheirFormulas) {
  ScheduleConfig config;
  config.floor = 0.1;
  config.warmup = 20;
  config.kind = ScheduleKind::linear;
  EXPECT_EQ(learning_rate(config, 2, 20, 120), 2);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2, 70, 120), 2 * (1 - 0.9 * 0.5));
  config.kind = ScheduleKind::cosine;
  EXPECT_EQ(learning_rate(config, 2, 20, 120), 2);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2, 70, 120), 2 * (0.1 + 0.9 * 0.5));
  EXPECT_NEAR(learning_rate(config, 2, 119, 120), 2 * (0.1 + 0.9 * (1 + std::cos(M_PI * 0.99)) / 2), 1e-15);
}

}  // namespace
}  // namespace mantissa
