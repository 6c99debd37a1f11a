#include "model/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace mantissa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kBlock = 128;  // queries at a time

// Keeps q, k, v, the output and the logarithm of each query's softmax denominator; probabilities are computed again in
// backward. q, k, v and the output are [rows, heads, context, size], the logarithms [rows, heads, context] in float32.
class BlockedAttention : public torch::autograd::Function<BlockedAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    auto [output, logs] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, /*is_causal=*/true);
    context->save_for_backward({q, k, v, output, logs});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const int64_t length = saved[0].size(2), size = saved[0].size(3);
    const auto flat = [&](const at::Tensor& t) { return t.reshape({-1, length, size}); };
    const at::Tensor q = flat(saved[0]), k = flat(saved[1]), v = flat(saved[2]), output = flat(saved[3]);
    const at::Tensor logs = saved[4].reshape({-1, length, 1}), gradient = flat(gradients[0]);
    const double scale = 1 / std::sqrt(static_cast<double>(size));
    // Scores are exponents: rounded to 16 bits, large ones would give probabilities that do not add up to 1, and leave
    // float16. So this product alone is in float32.
    const at::Tensor wide_q = at::mul(q.to(at::kFloat), scale), wide_k = k.to(at::kFloat);
    const at::Tensor mask = at::full({kBlock, kBlock}, -std::numeric_limits<float>::infinity(), at::kFloat).triu_(1);
    const at::Tensor grad_q = at::empty_like(q);
    const at::Tensor grad_k = at::zeros(k.sizes(), at::kFloat), grad_v = at::zeros(v.sizes(), at::kFloat);
    // sum over the keys of p * dp, for each query
    const at::Tensor mean = at::mul(gradient.to(at::kFloat), output.to(at::kFloat)).sum(2, /*keepdim=*/true);
    for (int64_t begin = 0; begin < length; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, length), count = end - begin;  // queries; keys from 0 to `end`
      const auto of_block = [&](const at::Tensor& t) { return t.narrow(1, begin, count); };
      const auto seen = [&](const at::Tensor& t) { return t.narrow(1, 0, end); };
      at::Tensor probabilities = at::bmm(of_block(wide_q), seen(wide_k).transpose(1, 2));
      probabilities.narrow(2, begin, count).add_(mask.narrow(0, 0, count).narrow(1, 0, count));
      probabilities.sub_(of_block(logs)).exp_();
      seen(grad_v).add_(at::bmm(probabilities.to(v.scalar_type()).transpose(1, 2), of_block(gradient)));
      at::Tensor grad_scores = at::bmm(of_block(gradient), seen(v).transpose(1, 2)).to(at::kFloat);
      grad_scores.sub_(of_block(mean)).mul_(probabilities);
      const at::Tensor narrow = grad_scores.mul_(scale).to(q.scalar_type());
      of_block(grad_q).copy_(at::bmm(narrow, seen(k)));
      seen(grad_k).add_(at::bmm(narrow.transpose(1, 2), of_block(q)));
    }
    const auto shaped = [&](const at::Tensor& t) { return t.to(q.scalar_type()).view(saved[0].sizes()); };
    return {shaped(grad_q), shaped(grad_k), shaped(grad_v)};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (c10::elementSize(q.scalar_type()) != 2)
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
  return BlockedAttention::apply(q, k, v);
}

}  // namespace mantissa
