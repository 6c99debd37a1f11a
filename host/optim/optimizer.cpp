#include "optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include "optim/adamw.h"
#include "optim/sgd.h"

namespace mantissa {
namespace {

template <class T>
std::span<T> span_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<T>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

int64_t num_optimizer_buffers(const OptimizerConfig& config) {
  if (config.kind == OptimizerKind::adamw) return 2;
  return config.momentum != 0 ? 1 : 0;
}

Optimizer::Optimizer(Root& root, const OptimizerConfig& config) : config_(config) {
  const at::NoGradGuard no_grad;
  for (FlatParameter* flat : root.trainable()) {
    State state{flat, {}};
    for (int64_t i = 0; i < num_optimizer_buffers(config); ++i)
      state.buffers.push_back(at::zeros_like(flat->shard().detach()));
    states_.push_back(std::move(state));
  }
}

void Optimizer::step(double lr, const DeferredScaling& scaling) {
  const at::NoGradGuard no_grad;
  ++taken_steps_;
  for (State& state : states_) {
    if (!state.flat->shard().grad().defined()) continue;
    if (state.flat->shard().scalar_type() == at::kDouble) {
      step_one<double>(state, lr, scaling);
    } else {
      step_one<float>(state, lr, scaling);
    }
  }
}

template <class T>
void Optimizer::step_one(State& state, double lr, const DeferredScaling& scaling) {
  const at::Tensor shard = state.flat->shard().detach();
  const std::span<T> parameters = span_of<T>(shard);
  const std::span<const T> gradients = span_of<T>(state.flat->shard().grad());
  if (config_.kind == OptimizerKind::adamw) {
    adamw(AdamWState<T>{parameters, gradients, span_of<T>(state.buffers[0]), span_of<T>(state.buffers[1])},
          {lr, config_.beta1, config_.beta2, config_.eps, config_.weight_decay, taken_steps_}, scaling);
  } else {
    const std::span<T> momentum = state.buffers.empty() ? std::span<T>() : span_of<T>(state.buffers[0]);
    sgd(SgdState<T>{parameters, gradients, momentum}, {lr, config_.momentum, config_.weight_decay, taken_steps_ == 1},
        scaling);
  }
}

}  // namespace mantissa
