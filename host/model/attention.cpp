#include "model/attention.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
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

double scale_of(const at::Tensor& q) { return 1 / std::sqrt(static_cast<double>(q.size(2))); }

// [n, queries, keys] in float32: what each query of the block from `begin` on sees of the keys up to its end. Queries
// are scaled before the product, which could leave float16 otherwise.
at::Tensor scores_of(const at::Tensor& scaled_q, const at::Tensor& k, int64_t begin, int64_t end) {
  at::Tensor scores =
      at::bmm(scaled_q.narrow(1, begin, end - begin), k.narrow(1, 0, end).transpose(1, 2)).to(at::kFloat);
  const at::Tensor later =
      at::full({end - begin, end - begin}, -std::numeric_limits<float>::infinity(), at::kFloat).triu_(1);
  scores.narrow(2, begin, end - begin).add_(later);
  return scores;
}

// Keeps q, k, v, the output and the logarithm of each query's softmax denominator; probabilities are computed again in
// backward. All are [n, context, size] with n = rows * heads; the logarithms [n, context] in float32.
class BlockedAttention : public torch::autograd::Function<BlockedAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const int64_t n = q.size(0), length = q.size(1);
    const at::Tensor scaled_q = at::mul(q, scale_of(q));
    at::Tensor output = at::empty_like(q);
    at::Tensor logs = at::empty({n, length}, at::kFloat);
    for (int64_t begin = 0; begin < length; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, length);
      at::Tensor probabilities = scores_of(scaled_q, k, begin, end);
      const at::Tensor log = at::logsumexp(probabilities, 2, /*keepdim=*/true);
      probabilities.sub_(log).exp_();
      output.narrow(1, begin, end - begin)
          .copy_(at::bmm(probabilities.to(v.scalar_type()), v.narrow(1, 0, end)));
      logs.narrow(1, begin, end - begin).copy_(log.squeeze(2));
    }
    context->save_for_backward({q, k, v, output, logs});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &output = saved[3], &logs = saved[4];
    const at::Tensor gradient = gradients[0].contiguous();
    const int64_t length = q.size(1);
    const at::Tensor scaled_q = at::mul(q, scale_of(q));
    const at::Tensor grad_q = at::empty_like(q);
    const at::Tensor grad_k = at::zeros(k.sizes(), at::kFloat), grad_v = at::zeros(v.sizes(), at::kFloat);
    // sum over the keys of p * dp, for each query
    const at::Tensor mean = at::mul(gradient.to(at::kFloat), output.to(at::kFloat)).sum(2, /*keepdim=*/true);
    for (int64_t begin = 0; begin < length; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, length), size = end - begin;
      const at::Tensor probabilities =
          scores_of(scaled_q, k, begin, end).sub_(logs.narrow(1, begin, size).unsqueeze(2)).exp_();
      const at::Tensor from_output = gradient.narrow(1, begin, size);
      grad_v.narrow(1, 0, end)
          .add_(at::bmm(probabilities.to(v.scalar_type()).transpose(1, 2), from_output));
      at::Tensor grad_scores =
          at::bmm(from_output, v.narrow(1, 0, end).transpose(1, 2)).to(at::kFloat);  // of the probabilities
      grad_scores.sub_(mean.narrow(1, begin, size)).mul_(probabilities);
      const at::Tensor narrow = grad_scores.to(q.scalar_type());
      grad_q.narrow(1, begin, size).copy_(at::bmm(narrow, k.narrow(1, 0, end)).mul_(scale_of(q)));
      grad_k.narrow(1, 0, end).add_(at::bmm(narrow.transpose(1, 2), scaled_q.narrow(1, begin, size)));
    }
    return {grad_q, grad_k.to(k.scalar_type()), grad_v.to(v.scalar_type())};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (c10::elementSize(q.scalar_type()) != 2)
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
  const int64_t n = q.size(0) * q.size(1), length = q.size(2), size = q.size(3);
  const auto flat = [&](const at::Tensor& t) { return t.reshape({n, length, size}); };
  return BlockedAttention::apply(flat(q), flat(k), flat(v)).view(q.sizes());
}

}  // namespace mantissa
