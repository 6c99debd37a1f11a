// The root: all units of one sharded module, the backward pass that runs through them, and what is known about the
// gradients.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "comm/world.h"
#include "fsdp/module_plan.h"
#include "fsdp/unit_state.h"
#include "mantissa/fully_shard.h"

namespace mantissa {

/// Where a rank's piece of a parameter lies: always in one stretch.
struct TrainablePiece {
  FlatParameter* flat = nullptr;
  int64_t parameter_offset = 0, shard_offset = 0;
  int64_t numel = 0;  ///< 0 if this rank holds nothing of it
};

class Root {
 public:
  /// [all ranks] Shards `module` in place, as `plan` says.
  static std::shared_ptr<Root> shard(const std::shared_ptr<torch::nn::Module>& module, ModulePlan plan,
                                     const World& world, const ShardOptions& options);
  ~Root();

  const ModulePlan& plan() const { return plan_; }
  const ShardOptions& options() const { return options_; }
  Exchange& exchange() { return world_.impl().exchange; }
  Transport& transport() { return *world_.impl().transport; }
  std::shared_ptr<UnitState> unit(size_t index) const { return units_[index]; }

  /// This rank's shard of each trainable flat parameter, in unit order.
  const std::vector<FlatParameter*>& trainable() const { return trainable_; }
  /// This rank's piece of each trainable parameter, in the order of ModulePlan::trainable.
  const std::vector<TrainablePiece>& trainable_pieces() const { return trainable_pieces_; }

  // ---- one step, as a trainer drives it; users of shards() and torch::optim need none of it

  /// The next backward pass is the last of its step; others are not reduced if reduce_every_microbatch is off.
  void set_last_microbatch(bool last) { last_microbatch_ = last; }
  /// The norm that is taken while gradients are reduced. In (0, inf].
  void set_norm_type(double norm_type) { norm_type_ = norm_type; }
  /// Of the reduced gradients of this rank, unit by unit; as reduced, whatever was done to them later.
  PartialNorm partial_norm() const;
  /// The same of one unit.
  PartialNorm partial_norm(size_t unit) const;
  /// False within a backward pass, and after one that left its gradients for a later micro-batch.
  bool gradients_reduced() const { return !in_backward_ && !unreduced_; }
  void clear_gradients();
  /// The shards have changed: gathers from now on see it.
  void publish();
  /// The root's forward begins: an optimizer of the user's may have changed shards without a word (torch::optim writes
  /// through data()), so nothing that is still gathered is used again.
  void renew();
  /// Of the unit calls since the last reset; the same on all ranks if they ran the same units in the same order.
  uint64_t call_hash() const { return call_hash_; }
  void reset_call_hash() { call_hash_ = 0; }

  /// [all ranks] Calls `visit` with each parameter whole, in storage_dtype, one flat parameter in memory at a time.
  void visit_full(const std::function<void(const ParameterEntry&, const at::Tensor&)>& visit);

  Stats stats() const;
  void reset_peak();

  // ---- for units and their hooks

  /// Throws if an earlier backward pass did not come to its end.
  void check_usable() const;
  void count_call(const UnitState& unit, bool grad_mode);
  void count_gathered(const UnitState& unit);
  void count_freed(const UnitState& unit);
  /// Called by every hook: the first one of a backward pass books its end.
  void begin_backward();
  /// Reduces what is ready, in the one order that all ranks share: the last unit first, the root at the end.
  /// False where gradients add up until the last micro-batch.
  bool reduces_now() const { return options_.reduce_every_microbatch || last_microbatch_; }
  void reduce_ready_units();
  /// Runs `body`, remembering the first exception: one in a hook keeps the end of the backward pass from running.
  template <class Body>
  void guarded(Body body) {
    try {
      body();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
      throw;
    }
  }

 private:
  Root(ModulePlan plan, const World& world, const ShardOptions& options);
  FlatDtypes dtypes_of(const std::vector<size_t>& parameters) const;
  void add_flat_parameter(UnitState& unit, const std::vector<size_t>& parameters, bool trainable);
  void agree_on_plan();
  void broadcast_buffer(const std::string& name, const at::Tensor& buffer);
  void cast_buffer(const std::string& name, at::Tensor buffer) const;
  void add_unit(size_t index);
  void find_trainable_pieces();
  void end_backward();

  ModulePlan plan_;
  World world_;
  ShardOptions options_;
  std::vector<std::shared_ptr<UnitState>> units_;  // the root first
  std::vector<FlatParameter*> trainable_;
  std::vector<TrainablePiece> trainable_pieces_;
  size_t num_reduced_ = 0;  // units of this backward pass, counted from the last
  bool in_backward_ = false, unreduced_ = false, last_microbatch_ = true;
  double norm_type_ = 2;
  uint64_t call_hash_ = 0;
  Stats stats_;
  std::exception_ptr failure_;
};

}  // namespace mantissa
