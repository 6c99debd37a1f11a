#include "optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include "optim/adamw.h"
#include "optim/sgd.h"

namespace mantissa {
namespace {

template <class T>
std::span<T> span_of(const at::Tensor& tensor, const DecayStretch& stretch) {
  return std::span<T>(tensor.data_ptr<T>(), static_cast<size_t>(tensor.numel()))
      .subspan(static_cast<size_t>(stretch.begin), static_cast<size_t>(stretch.end - stretch.begin));
}

std::vector<double> weight_decays(const FlatParameter& flat, const OptimizerConfig& config) {
  std::vector<double> decays;
  for (const FlatParameter::Member& member : flat.members()) {
    const bool decays_too = config.decay == Decay::all || member.tensor.dim() >= 2;
    decays.push_back(decays_too ? config.weight_decay : 0);
  }
  return decays;
}

}  // namespace

int64_t num_optimizer_buffers(const OptimizerConfig& config) {
  if (config.kind == OptimizerKind::adamw) return 2;
  return config.momentum != 0 ? 1 : 0;
}

Optimizer::Optimizer(Root& root, const OptimizerConfig& config) : config_(config) {
  const at::NoGradGuard no_grad;
  for (FlatParameter* flat : root.trainable()) {
    State state{flat, {}, decay_stretches(flat->pieces(), flat->layout().shard_numel(), weight_decays(*flat, config))};
    const at::ScalarType dtype = flat->shard().scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    for (int64_t i = 0; i < num_optimizer_buffers(config); ++i)
      state.buffers.push_back(at::zeros_like(flat->shard().detach(), dtype));
    states_.push_back(std::move(state));
  }
}

std::vector<at::Tensor> Optimizer::buffers() const {
  std::vector<at::Tensor> all;
  for (const State& state : states_) all.insert(all.end(), state.buffers.begin(), state.buffers.end());
  return all;
}

void Optimizer::step(double lr, const DeferredScaling& scaling) {
  const at::NoGradGuard no_grad;
  ++taken_steps_;
  for (State& state : states_) {
    if (!state.flat->shard().grad().defined()) continue;
    with_element_type(state.flat->shard().scalar_type(), [&]<class T>(std::type_identity<T>) {
      for (const DecayStretch& stretch : state.stretches) step_stretch<T>(state, stretch, lr, scaling);
    });
  }
}

template <class T>
void Optimizer::step_stretch(State& state, const DecayStretch& stretch, double lr, const DeferredScaling& scaling) {
  const std::span<T> parameters = span_of<T>(state.flat->shard().detach(), stretch);
  const std::span<const T> gradients = span_of<T>(state.flat->shard().grad(), stretch);
  const auto buffer = [&](size_t i) { return span_of<Compute<T>>(state.buffers[i], stretch); };
  if (config_.kind == OptimizerKind::adamw) {
    adamw<T>(AdamWState<T>{parameters, gradients, buffer(0), buffer(1)},
             {lr, config_.beta1, config_.beta2, config_.eps, stretch.weight_decay, taken_steps_}, scaling);
  } else {
    const std::span<Compute<T>> momentum = state.buffers.empty() ? std::span<Compute<T>>() : buffer(0);
    sgd<T>(SgdState<T>{parameters, gradients, momentum},
           {lr, config_.momentum, stretch.weight_decay, taken_steps_ == 1}, scaling);
  }
}

}  // namespace mantissa
