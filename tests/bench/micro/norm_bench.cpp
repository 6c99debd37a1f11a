// The partial norm of a gradient shard: largest magnitude, non-finite count and sum in float64.
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sin.h>
#include <benchmark/benchmark.h>

#include "comm/partial_norm.h"

namespace mantissa {
namespace {

constexpr int64_t kShard = 1'661'696;  // half of the 3.3 M GPT

at::Tensor gradients(int64_t size) { return at::sin(at::arange(size, at::kFloat)); }

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * static_cast<int64_t>(sizeof(float)));
}

void measure(benchmark::State& state, double norm_type) {
  const at::Tensor values = gradients(state.range(0));
  const std::span<const float> span(values.data_ptr<float>(), static_cast<size_t>(values.numel()));
  for (auto _ : state) benchmark::DoNotOptimize(measure_norm(span, norm_type));
  count_bytes(state);
}

void Norm2(benchmark::State& state) { measure(state, 2); }
void NormInfinity(benchmark::State& state) { measure(state, std::numeric_limits<double>::infinity()); }

void Norm2_LibTorch(benchmark::State& state) {  // float32 sums, and no word on what is not finite
  const at::Tensor values = gradients(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(at::linalg_vector_norm(values, 2).item<float>());
  count_bytes(state);
}

BENCHMARK(Norm2)->Arg(1 << 14)->Arg(kShard);
BENCHMARK(NormInfinity)->Arg(kShard);
BENCHMARK(Norm2_LibTorch)->Arg(1 << 14)->Arg(kShard);

}  // namespace
}  // namespace mantissa
