// The optimizer's pass over a flat shard, clip factor included, beside LibTorch's fused AdamW on one tensor of that
// size.
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>

#include "optim/adamw.h"

namespace mantissa {
namespace {

constexpr int64_t kShard = 1'661'696;  // half of the 3.3 M GPT

struct Buffers {
  explicit Buffers(int64_t size)
      : parameters(at::ones(size)),
        gradients(at::sin(at::arange(size, at::kFloat)).mul_(1e-3)),
        exp_avg(at::zeros(size)),
        exp_avg_sq(at::zeros(size)) {}
  at::Tensor parameters, gradients, exp_avg, exp_avg_sq;
};

std::span<float> span_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

void AdamW(benchmark::State& state) {
  const Buffers buffers(state.range(0));
  DeferredScaling scaling;
  scaling.scale(0.5);
  AdamWStep step;
  step.weight_decay = 0.1;
  for (auto _ : state) {
    adamw({span_of(buffers.parameters), span_of(buffers.gradients), span_of(buffers.exp_avg),
           span_of(buffers.exp_avg_sq)},
          step, scaling);
    ++step.step;
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void AdamW_LibTorchFused(benchmark::State& state) {
  Buffers buffers(state.range(0));
  std::vector<at::Tensor> parameters{buffers.parameters}, gradients{buffers.gradients}, exp_avg{buffers.exp_avg},
      exp_avg_sq{buffers.exp_avg_sq}, max_exp_avg_sq, steps{at::zeros({}, at::kFloat)};
  for (auto _ : state) {
    steps[0].add_(1);
    at::_fused_adamw_(parameters, gradients, exp_avg, exp_avg_sq, max_exp_avg_sq, steps, 1e-3, 0.9, 0.999, 0.1, 1e-8,
                      false, false);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK(AdamW)->Arg(1 << 14)->Arg(kShard);
BENCHMARK(AdamW_LibTorchFused)->Arg(1 << 14)->Arg(kShard);

}  // namespace
}  // namespace mantissa
