// The non-template half of mantissa/unit.h: what happens around one call of a unit's forward.
#include <ATen/core/grad_mode.h>

#include <set>
#include <utility>

#include <torch/csrc/autograd/function.h>

#include "base/error.h"
#include "fsdp/root.h"
#include "mantissa/unit.h"

namespace mantissa {

void UnitBase::refuse_clone() const {
  if (!unit_) return;
  throw UsageError(
      "unit \"" + unit_->name() +
      "\" cannot be cloned after sharding: its parameters are not here; clone the module before fully_shard");
}

namespace detail {

struct ForwardScope::Call {
  bool grad_mode = false;
  bool has_backward = false;                             // an output requires grad
  std::set<std::pair<const void*, const void*>> inputs;  // tensor and the node that made it
  at::Tensor latest;                                     // the input that was made last; it has a node
};

namespace {

std::pair<const void*, const void*> identity(const at::Tensor& tensor) {
  return {tensor.unsafeGetTensorImpl(), tensor.grad_fn().get()};
}

std::shared_ptr<UnitState> still_there(const std::weak_ptr<UnitState>& unit) {
  if (auto alive = unit.lock()) return alive;
  throw UsageError(
      "backward through a sharded module that is gone: keep the Sharded object until the backward pass is over");
}

// Before the backward of what follows `tensor`, its unit is gathered.
void gather_before_backward_of(const at::TensorBase& tensor, const std::weak_ptr<UnitState>& unit) {
  tensor.register_hook([unit](const at::TensorBase&) {
    const auto alive = still_there(unit);
    alive->root().guarded([&] {
      alive->root().begin_backward();
      alive->unshard();
    });
  });
}

}  // namespace

ForwardScope::ForwardScope(std::shared_ptr<UnitState> unit) : unit_(std::move(unit)), call_(std::make_unique<Call>()) {
  call_->grad_mode = at::GradMode::is_enabled();
  unit_->root().check_usable();
  if (unit_->is_root()) unit_->root().renew();
  unit_->root().count_call(*unit_, call_->grad_mode);
  unit_->unshard();
}

ForwardScope::~ForwardScope() {
  const bool threw = std::uncaught_exceptions() > exceptions_;
  const bool keep = call_->has_backward && (unit_->is_root() || !unit_->root().options().reshard_after_forward);
  if (threw || !keep) unit_->reshard();
}

// Hooks, not a node of our own: a view in between would make the user's next in-place operation throw.
//
// The engine runs nodes in the reverse order of their making. So when the hook of the input that was made last runs,
// every node of this call has run; the other inputs need no hook (one that is used by every block would be complete
// only at the end). Leaves have none either: their gradients are complete before the nodes that are left.
void ForwardScope::input(const at::Tensor& tensor) {
  if (!call_->grad_mode || !tensor.defined() || !tensor.requires_grad()) return;
  call_->inputs.insert(identity(tensor));
  const auto node = tensor.grad_fn();
  if (node && (!call_->latest.defined() || node->sequence_nr() > call_->latest.grad_fn()->sequence_nr()))
    call_->latest = tensor;
}

void ForwardScope::begin() {
  const at::Tensor latest = std::exchange(call_->latest, {});
  if (call_->grad_mode) unit_->call_begins(latest.defined());
  if (!latest.defined() || unit_->is_root()) return;
  latest.register_hook([unit = std::weak_ptr<UnitState>(unit_)](const at::TensorBase&) {
    const auto alive = still_there(unit);
    alive->root().guarded([&] { alive->call_done(); });
  });
}

void ForwardScope::output(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  unit_->check_output(tensor);
  if (!call_->grad_mode || !tensor.requires_grad()) return;
  if (call_->inputs.contains(identity(tensor))) return;  // passed through untouched: its gradient needs no parameter
  call_->has_backward = true;
  gather_before_backward_of(tensor, unit_);
  // An in-place operation on a view takes the place of the view's node, not of its base's: Linear returns such a view.
  if (tensor.is_view() && tensor._base().requires_grad() && tensor._base().grad_fn())
    gather_before_backward_of(tensor._base(), unit_);
}

}  // namespace detail
}  // namespace mantissa
