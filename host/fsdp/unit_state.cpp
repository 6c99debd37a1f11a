#include "fsdp/unit_state.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "fsdp/root.h"

namespace mantissa {

// Fires when autograd has accumulated into a parameter's grad(); with an undefined gradient too.
class UnitState::GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(std::weak_ptr<UnitState> unit, FlatParameter* flat, size_t member) : unit_(std::move(unit)), flat_(flat), member_(member) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    const auto unit = unit_.lock();
    if (!unit || !parameter.grad().defined()) return;
    unit->root().guarded([&] { unit->gradient_arrived(*flat_, member_, parameter.mutable_grad()); });
  }

 private:
  std::weak_ptr<UnitState> unit_;
  FlatParameter* flat_;
  size_t member_;
};

void UnitState::add_parameters(std::unique_ptr<FlatParameter> parameters) {
  FlatParameter* flat = parameters.get();
  if (flat->trainable()) {
    num_trainable_ += flat->members().size();
    for (size_t i = 0; i < flat->members().size(); ++i) {
      torch::autograd::impl::set_post_acc_grad_hooks(flat->members()[i].tensor, std::make_unique<GradientHook>(weak_from_this(), flat, i));
    }
  }
  flat_.push_back(std::move(parameters));
}

size_t UnitState::gathered_bytes() const {
  size_t bytes = 0;
  for (const auto& flat : flat_) bytes += flat->replicated() ? 0 : flat->gathered_bytes();
  return bytes;
}

void UnitState::unshard() {
  if (gathered_) return;
  for (auto& flat : flat_) flat->unshard();
  gathered_ = true;
  root_.count_gathered(*this);
}

void UnitState::reshard() {
  if (!gathered_) return;
  for (auto& flat : flat_) flat->reshard();
  gathered_ = false;
  root_.count_freed(*this);
}

void UnitState::call_done() {
  // A call of a graph that an earlier backward pass left behind is not counted any more.
  if (outstanding_calls_ > 0 && --outstanding_calls_ == 0 && !is_root_) reshard();
}

void UnitState::gradient_arrived(FlatParameter& flat, size_t member, at::Tensor& gradient) {
  root_.begin_backward();
  flat.add_gradient(member, gradient);
  gradient = at::Tensor();
  if (++arrived_ == num_trainable_) {
    ready_ = true;
    root_.reduce_ready_units();
  }
}

void UnitState::reduce(double norm_type) {
  for (auto& flat : flat_) {
    if (flat->trainable()) flat->reduce(norm_type);
  }
}

void UnitState::end_backward() {
  reshard();
  outstanding_calls_ = 0;
  arrived_ = 0;
  ready_ = false;
}

}  // namespace mantissa
