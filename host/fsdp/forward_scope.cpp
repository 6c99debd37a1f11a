// The non-template half of mantissa/unit.h: what happens around one call of a unit's forward.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "fsdp/root.h"
#include "mantissa/unit.h"

namespace mantissa {

UnitBase::UnitBase(const UnitBase& other) : unit_() {
  if (other.unit_) {
    throw UsageError("unit \"" + other.unit_->name() + "\" cannot be cloned after sharding: its parameters are not here; clone the module before fully_shard");
  }
}

namespace detail {

// Shared with the hooks on the call's inputs: when the last of them has run, the call's backward is over.
struct ForwardScope::Call {
  bool grad_mode = false;
  bool has_backward = false;                                  // an output requires grad
  int pending_inputs = 0;                                     // hooks that have not run yet
  std::set<std::pair<const void*, const void*>> inputs;       // tensor and the node that made it
};

namespace {

std::pair<const void*, const void*> identity(const at::Tensor& tensor) { return {tensor.unsafeGetTensorImpl(), tensor.grad_fn().get()}; }

}  // namespace

ForwardScope::ForwardScope(std::shared_ptr<UnitState> unit) : unit_(std::move(unit)), call_(std::make_shared<Call>()) {
  call_->grad_mode = at::GradMode::is_enabled();
  unit_->root().check_usable();
  unit_->root().count_call(*unit_, call_->grad_mode);
  unit_->unshard();
}

ForwardScope::~ForwardScope() {
  const bool threw = std::uncaught_exceptions() > exceptions_;
  const bool keep = call_->has_backward && (unit_->is_root() || !unit_->root().options().reshard_after_forward);
  if (threw || !keep) unit_->reshard();
}

// Hooks, not a node of our own: a view in between would make the user's next in-place operation throw.
void ForwardScope::input(const at::Tensor& tensor) {
  if (!call_->grad_mode || unit_->is_root() || !tensor.defined() || !tensor.requires_grad()) return;
  if (!call_->inputs.insert(identity(tensor)).second) return;  // the same tensor twice: its hook runs once with all of its gradient
  if (call_->pending_inputs++ == 0) unit_->call_outstanding();
  tensor.register_hook([unit = std::weak_ptr<UnitState>(unit_), call = call_](const at::TensorBase&) {
    const auto alive = unit.lock();
    if (!alive || --call->pending_inputs != 0) return;
    alive->root().guarded([&] { alive->call_done(); });
  });
}

void ForwardScope::output(const at::Tensor& tensor) {
  if (!call_->grad_mode || !tensor.defined() || !tensor.requires_grad()) return;
  if (call_->inputs.contains(identity(tensor))) return;  // passed through untouched: its gradient needs no parameter
  call_->has_backward = true;
  tensor.register_hook([unit = std::weak_ptr<UnitState>(unit_)](const at::TensorBase&) {
    const auto alive = unit.lock();
    if (!alive) return;
    alive->root().guarded([&] {
      alive->root().begin_backward();
      alive->unshard();
    });
  });
}

}  // namespace detail
}  // namespace mantissa
