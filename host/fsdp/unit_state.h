// A unit at run time: when its parameters are gathered and freed, and when its gradients are complete.
//
// forward: gather, compute, free. backward: a hook on the outputs gathers, post-accumulate hooks on the parameters
// collect the gradients, and a hook on an input of each call tells when its backward is over; after the last one the
// gradients are reduced and the parameters freed. All of it is done by hooks on tensors, as C++ modules have none, and
// no node is added to the user's graph.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "fsdp/flat_parameter.h"

namespace mantissa {

class Root;

class UnitState : public std::enable_shared_from_this<UnitState> {
 public:
  UnitState(Root& root, std::string name, bool is_root, size_t index)
      : root_(root), name_(std::move(name)), is_root_(is_root), index_(index) {}

  /// The unit's parameters: trainable ones and frozen ones apart, so that frozen ones have no gradient and no state.
  void add_parameters(std::unique_ptr<FlatParameter> parameters);
  std::vector<std::unique_ptr<FlatParameter>>& flat_parameters() { return flat_; }

  const std::string& name() const { return name_; }
  bool is_root() const { return is_root_; }
  size_t index() const { return index_; }
  Root& root() { return root_; }
  size_t gathered_bytes() const;  ///< that come and go: without replicated parameters

  void unshard();
  void reshard();

  /// Throws UsageError if a forward returned a parameter, or a view of one, that is about to be freed.
  void check_output(const at::Tensor& tensor) const;

  /// A call under grad mode begins; `tells_its_end`: a hook on its input will say when its backward is over.
  void call_begins(bool tells_its_end);
  /// The backward of such a call is over. These are the points where gradients are reduced and parameters freed: the
  /// graph of unit calls fixes them, whichever parameters got a gradient on this rank.
  void call_done();

  /// No call of this backward pass is open any more: all gradients are here.
  bool ready() const { return ready_ || !trainable_ || !called_; }
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
  int open_calls_ = 0;  // whose end a hook will tell
  bool trainable_ = false, called_ = false, gathered_ = false;
  bool untold_call_ = false;  // a call whose end no hook tells: ready only at the end of the backward pass
  bool ready_ = false, reduced_ = false;
};

}  // namespace mantissa
