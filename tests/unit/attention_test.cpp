// Causal attention in 16 bits against LibTorch's in float64, around the size of a block and far above it.
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include "model/attention.h"
#include "support/tensors.h"

namespace mantissa {
namespace {

struct Result {
  at::Tensor output, grad_q, grad_k, grad_v;
};

template <class Attention>
Result run(Attention attention, const std::vector<at::Tensor>& qkv, at::ScalarType dtype, const at::Tensor& weight) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& t : qkv) leaves.push_back(t.to(dtype).clone().set_requires_grad(true));
  const at::Tensor output = attention(leaves[0], leaves[1], leaves[2]);
  at::mul(output.to(at::kDouble), weight).sum().backward();
  return {output.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
}

struct Shape {
  int64_t context, size;
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.context << " x " << shape.size; }

class Attention : public ::testing::TestWithParam<std::tuple<at::ScalarType, Shape>> {};

// Limit: a few roundings to the type's digits, of numbers of size 1.
TEST_P(Attention, OutputAndGradients_AreThoseOfFloat64) {
  const auto [dtype, shape] = GetParam();
  at::set_num_threads(1);
  at::manual_seed(3);
  std::vector<at::Tensor> qkv;  // values of the narrow type, so that both sides start from the same
  for (int i = 0; i < 3; ++i) qkv.push_back(at::randn({2, 3, shape.context, shape.size}).to(dtype).to(at::kDouble));
  const at::Tensor weight = at::randn({2, 3, shape.context, shape.size}).to(dtype).to(at::kDouble);
  const auto reference = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
  };
  const Result want = run(reference, qkv, at::kDouble, weight);
  const Result got = run(causal_attention, qkv, dtype, weight);
  const double digit = dtype == at::kHalf ? 0x1p-10 : 0x1p-7;
  const auto expect_near = [&](const at::Tensor& a, const at::Tensor& b, const char* what) {
    EXPECT_EQ(a.scalar_type(), dtype) << what;
    const double size = b.abs().max().item<double>();
    EXPECT_LT(test::largest_difference(a, b), 4 * digit * std::max(1.0, size)) << what;
  };
  expect_near(got.output, want.output, "output");
  expect_near(got.grad_q, want.grad_q, "gradient of q");
  expect_near(got.grad_k, want.grad_k, "gradient of k");
  expect_near(got.grad_v, want.grad_v, "gradient of v");
}

INSTANTIATE_TEST_SUITE_P(Types, Attention,
                         ::testing::Combine(::testing::Values(at::kBFloat16, at::kHalf),
                                            ::testing::Values(Shape{1, 8}, Shape{5, 4}, Shape{127, 64}, Shape{128, 64},
                                                              Shape{129, 64}, Shape{1000, 16})));

// Scores up to about 40: rounded to 16 bits before the exponential, they would give probabilities 10 % wrong.
TEST(AttentionOfLargeScores, Gradients_AreThoseOfFloat64) {
  at::set_num_threads(1);
  at::manual_seed(5);
  std::vector<at::Tensor> qkv;
  for (const double factor : {4.0, 4.0, 1.0})
    qkv.push_back(at::mul(at::randn({1, 2, 200, 32}), factor).to(at::kBFloat16).to(at::kDouble));
  const at::Tensor weight = at::randn({1, 2, 200, 32}).to(at::kBFloat16).to(at::kDouble);
  const auto reference = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
  };
  const Result want = run(reference, qkv, at::kDouble, weight);
  const Result got = run(causal_attention, qkv, at::kBFloat16, weight);
  const auto relative = [](const at::Tensor& a, const at::Tensor& b) {
    return at::sub(a.to(at::kDouble), b).norm().item<double>() / b.norm().item<double>();
  };
  EXPECT_LT(relative(got.grad_q, want.grad_q), 0.01);
  EXPECT_LT(relative(got.grad_k, want.grad_k), 0.01);
  EXPECT_LT(relative(got.grad_v, want.grad_v), 0.01);
}

// q k^T is 96000 here, which float16 does not hold; divided by sqrt(64) it is 12000.
TEST(AttentionOfLargeScores, InFloat16_StaysFinite) {
  const auto full = [](double value) { return at::full({1, 1, 3, 64}, value, at::kHalf); };
  EXPECT_TRUE(causal_attention(full(30), full(50), full(1)).isfinite().all().item<bool>());
  const at::Tensor q = full(30).set_requires_grad(true);
  causal_attention(q, full(50), full(1)).to(at::kFloat).sum().backward();
  EXPECT_TRUE(q.grad().isfinite().all().item<bool>());
}

}  // namespace
}  // namespace mantissa
