// Causal self-attention, in the way that is fast for its number format on a CPU.
#pragma once
#include <ATen/core/Tensor.h>

namespace mantissa {

/// softmax(q k^T / sqrt(size), causal) v, differentiable. q, k, v: [rows, heads, context, size], of one dtype; so the
/// result.
///
/// In float32 and float64 this is LibTorch's scaled_dot_product_attention. In 16 bits the backward pass of that makes a
/// oneDNN primitive for each tile, a third of a training step. So there the forward pass is LibTorch's, and the
/// backward pass computes the probabilities again, by matrix products over blocks of queries: no [context, context]
/// matrix is kept, and little right of the diagonal is computed. The scores, what lies between products, and sums over
/// blocks are in float32; the other products are rounded to 16 bits.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

}  // namespace mantissa
