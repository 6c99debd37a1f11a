#include "fsdp/unit_state.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "base/error.h"
#include "fsdp/root.h"

namespace mantissa {

// Fires when autograd has accumulated into a parameter's grad(); with an undefined gradient too.
class UnitState::GradientHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(std::weak_ptr<UnitState> unit, FlatParameter* flat, size_t member)
      : unit_(std::move(unit)), flat_(flat), member_(member) {}

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
    trainable_ = true;
    for (size_t i = 0; i < flat->members().size(); ++i) {
      torch::autograd::impl::set_post_acc_grad_hooks(flat->members()[i].tensor,
                                                     std::make_unique<GradientHook>(weak_from_this(), flat, i));
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

void UnitState::check_output(const at::Tensor& tensor) const {
  for (const auto& flat : flat_) {
    if (!flat->holds(tensor)) continue;
    throw UsageError("the forward of " + (is_root_ ? std::string("the root") : "unit \"" + name_ + "\"") +
                     " returned a parameter or a view of one, whose memory is freed when the call ends; return a copy, "
                     "by clone() or by computing with it");
  }
}

void UnitState::call_begins(bool tells_its_end) {
  called_ = true;
  if (tells_its_end) {
    ++open_calls_;
  } else {
    untold_call_ = true;
  }
}

void UnitState::call_done() {
  // A call of a graph that an earlier backward pass left behind is not counted any more.
  if (open_calls_ == 0 || --open_calls_ > 0 || untold_call_ || is_root_) return;
  root_.begin_backward();
  ready_ = true;
  root_.reduce_ready_units();
  reshard();
}

void UnitState::gradient_arrived(FlatParameter& flat, size_t member, at::Tensor& gradient) {
  root_.begin_backward();
  if (reduced_) {
    throw UsageError("parameter \"" + flat.members()[member].name +
                     "\" got a gradient after its unit was reduced in this backward pass; use it only in "
                     "the unit's own forward, and no nested backward");
  }
  if (root_.reduces_now()) {
    flat.add_gradient(member, gradient);
  } else {
    flat.add_deferred_gradient(member, gradient);
  }
  gradient = at::Tensor();
}

void UnitState::reduce(double norm_type) {
  for (auto& flat : flat_) {
    if (flat->trainable()) flat->reduce(norm_type);
  }
  reduced_ = true;
}

void UnitState::end_backward() {
  reshard();
  open_calls_ = 0;
  called_ = untold_call_ = ready_ = reduced_ = false;
}

}  // namespace mantissa
