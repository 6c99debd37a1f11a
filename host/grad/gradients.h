// The reduced gradients of a root during one step: their norm, and how they are to be scaled. Every function marked
// [all ranks] is called by all ranks in the same order. Semantics: docs of clip_grad_norm_ in mantissa/clip.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/exchange.h"
#include "fsdp/root.h"
#include "grad/scaling.h"

namespace mantissa {

/// A parameter whose gradient is not finite.
struct NonfiniteParameter {
  std::string name;
  uint64_t count = 0;  ///< elements, over all ranks
};

class Gradients {
 public:
  explicit Gradients(Root& root) : root_(root) {}

  /// A new step: nothing is scaled. `agreed`: the norm that the ranks exchanged after backward; free to ask for from
  /// now on.
  void begin_step(const PartialNorm& agreed);
  /// A new step whose norm nobody has agreed on yet.
  void begin_step();

  /// [all ranks] The p-norm over all trainable parameters of the root, each element once, as they are now, scaling
  /// included. float64; the same bits on every rank; NaN if any gradient is NaN, otherwise inf if any is infinite; 0
  /// without gradients. Throws UsageError unless norm_type is in (0, inf], OrderError while gradients are unreduced.
  double norm(double norm_type);

  /// [all ranks] Scales by clip_coef and returns the norm before. A norm that is not finite leaves the gradients alone.
  double clip_norm(double max_norm, double norm_type);

  /// Clamps every element. No communication. Throws UsageError unless limit >= 0.
  void clip_value(double limit);

  /// Multiplies by `factor`. No communication. Throws UsageError unless it is finite and >= 0.
  void scale(double factor);

  /// What the optimizer has to apply to this rank's gradients.
  const DeferredScaling& scaling() const { return scaling_; }

  /// True if the gradients in memory are no longer those that were reduced.
  bool modified() const { return modified_; }

  /// The norm after scaling, of the agreed norm's type; only while nothing is clamped or modified.
  double norm_scaled() const { return known_.value() * scaling_.factor; }

  /// Applies the scaling now, to the gradients themselves.
  void apply();

  /// This rank's part of the norm after scaling; reads the gradients if they are clamped, changes nothing.
  PartialNorm partial_norm_scaled(double norm_type);

  /// [all ranks] Which parameters hold NaN or infinity.
  std::vector<NonfiniteParameter> nonfinite_parameters();

 private:
  PartialNorm measure(double norm_type) const;
  void check_reduced() const;

  Root& root_;
  DeferredScaling scaling_;
  bool known_is_valid_ = false, modified_ = false;
  PartialNorm known_;  // of the gradients as they lie in memory, agreed over the ranks
};

/// Throws UsageError unless `norm_type` is in (0, inf].
void check_norm_type(double norm_type);
/// Throws UsageError unless `limit` >= 0; `what` is its name.
void check_limit(const char* what, double limit);

}  // namespace mantissa
