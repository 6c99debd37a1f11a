// A unit at run time: when its parameters are gathered and freed, and when its gradients are complete.
//
// forward: gather, compute, free. backward: a hook on the outputs gathers, post-accumulate hooks on the parameters collect the
// gradients, hooks on the inputs of the last outstanding call free. All of it is done by hooks on tensors, as C++ modules have
// none, and no node is added to the user's graph.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "fsdp/flat_parameter.h"

namespace mantissa {

class Root;

class UnitState : public std::enable_shared_from_this<UnitState> {
 public:
  UnitState(Root& root, std::string name, bool is_root, size_t index) : root_(root), name_(std::move(name)), is_root_(is_root), index_(index) {}

  /// The unit's parameters: trainable ones and frozen ones apart, so that frozen ones have no gradient and no state.
  void add_parameters(std::unique_ptr<FlatParameter> parameters);
  std::vector<std::unique_ptr<FlatParameter>>& flat_parameters() { return flat_; }

  const std::string& name() const { return name_; }
  bool is_root() const { return is_root_; }
  size_t index() const { return index_; }
  Root& root() { return root_; }
  bool gathered() const { return gathered_; }
  size_t gathered_bytes() const;  ///< that come and go: without replicated parameters

  void unshard();
  void reshard();

  /// A call under grad mode was made whose backward will need the parameters.
  void call_outstanding() { ++outstanding_calls_; }
  /// That call's backward is over.
  void call_done();

  /// All trainable parameters have their gradient of this backward pass.
  bool ready() const { return ready_ || num_trainable_ == 0; }
  void set_ready() { ready_ = true; }
  void reduce(double norm_type);
  void end_backward();

 private:
  class GradientHook;
  void gradient_arrived(FlatParameter& flat, size_t member, at::Tensor& gradient);

  Root& root_;
  std::string name_;
  bool is_root_;
  size_t index_;
  std::vector<std::unique_ptr<FlatParameter>> flat_;
  size_t num_trainable_ = 0, arrived_ = 0;
  int outstanding_calls_ = 0;
  bool gathered_ = false, ready_ = false;
};

}  // namespace mantissa
