// The reduced gradients of a root during one step: their norm, and how they are to be scaled. Every function marked
// [all ranks] is called by all ranks in the same order. Semantics: docs/numerics.md.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/exchange.h"
#include "fsdp/root.h"
#include "grad/scaling.h"

namespace mantissa {

/// A parameter whose gradient is not finite.
struct NonfiniteParameter {
  std::string name;
  uint64_t count = 0;  ///< elements that are NaN or infinite, over all ranks
  uint64_t first = 0;  ///< index of the first of them in the flattened parameter
};

class Gradients {
 public:
  explicit Gradients(Root& root) : root_(root) {}

  /// A new step: nothing is scaled. `agreed`: the norm that the ranks exchanged after backward; free to ask for from
  /// now on.
  void begin_step(const PartialNorm& agreed);
  /// A new step whose norm nobody has agreed on yet.
  void begin_step();
  /// As begin_step(agreed), after the backward pass of a loss that was multiplied by `loss_scale`, finite and > 0:
  /// until unscale() everything else is an OrderError.
  void begin_scaled_step(const PartialNorm& agreed, double loss_scale);

  /// From now on the gradients count as multiplied by 1 / `loss_scale`, which must be that of begin_scaled_step (else
  /// UsageError); once (else OrderError). No communication: returns found_inf, true on every rank if any gradient of
  /// any rank is NaN or infinite, or leaves its type by this.
  bool unscale(double loss_scale);
  bool awaits_unscale() const { return loss_scale_.has_value(); }

  /// [all ranks] The p-norm over all trainable parameters of the root, each element once, as they are now, scaling
  /// included. float64; the same bits on every rank; NaN if any gradient is NaN, otherwise inf if any is infinite; 0
  /// without gradients. Throws UsageError unless norm_type is in (0, inf], OrderError while gradients are unreduced or
  /// loss-scaled.
  double norm(double norm_type);

  /// [all ranks] The p-norm of each trainable parameter's gradient as it is now, in the order of ModulePlan::trainable;
  /// as norm() otherwise. One gather of two numbers a parameter.
  std::vector<double> norms(double norm_type);

  /// [all ranks] The norm of each unit's gradients as they were reduced, unscaled, of the type that was measured with
  /// them, in the order of ModulePlan::units; 0 for a unit without trainable parameters. One gather of two numbers a
  /// unit.
  std::vector<double> unit_norms() const;

  /// [all ranks] Scales by clip_coef and returns the norm before. A norm that is not finite leaves the gradients alone.
  double clip_norm(double max_norm, double norm_type);

  /// Clamps every element. No communication. Throws UsageError unless limit >= 0.
  void clip_value(double limit);

  /// Multiplies by `factor`. No communication. Throws UsageError unless it is finite and >= 0.
  void scale(double factor);

  /// Multiplies the gradient of each trainable parameter, in the order of ModulePlan::trainable, by its own factor, at
  /// once. No communication. Throws UsageError unless there is one for each and all are finite and >= 0.
  void scale_each(std::span<const double> factors);

  /// This rank's piece of the gradient of `trainable`, an index into ModulePlan::trainable: [numel], contiguous, of
  /// storage_dtype, everything asked for applied; [0] if this rank holds nothing. No communication.
  at::Tensor piece(size_t trainable);
  /// Somebody writes into pieces: norms are taken anew. Must be said on every rank or on none.
  void written();

  /// The product of what scale() and clip_norm() multiplied by in this step, applied or not.
  double factor() const { return factor_; }

  /// What the optimizer has to apply to this rank's gradients.
  const DeferredScaling& scaling() const { return scaling_; }

  /// False once the gradients in memory were clamped or written to: the norm of this type is no longer known without a
  /// look. After a write it is not known again in this step, since spans may be written to at any time.
  bool norm_is_known(double norm_type) const { return known_is_valid_ && known_.norm_type == norm_type; }

  /// The smallest bound on an element's magnitude that was asked for, later factors included; infinity without one, and
  /// once gradients were written to.
  double limit() const { return std::min(scaling_.limit, applied_limit_); }
  bool written_to() const { return written_; }

  /// True if a gradient, finite before, leaves its type by what was asked for; only while the norm is known.
  bool overflows() const { return leaves_type(known_.scaled(scaling_.product()).largest); }

  /// Of the factors and limits asked for in this step: the same on ranks that asked for the same.
  uint64_t asked_hash() const { return asked_hash_; }

  /// The norm after scaling, of the agreed norm's type; only while it is known and nothing is clamped.
  double norm_scaled() const { return known_.scaled(scaling_.product()).value(); }

  /// Applies the scaling now, to the gradients themselves.
  void apply();

  /// This rank's part of the norm after scaling; looks at the gradients only if it is not known, and changes nothing.
  PartialNorm partial_norm_scaled(double norm_type) const;

  /// [all ranks] Which parameters hold NaN or infinity, as the gradients lie in memory.
  std::vector<NonfiniteParameter> nonfinite_parameters();

 private:
  PartialNorm measure(double norm_type) const;
  void check_ready() const;
  void ask(double number);  ///< takes it into asked_hash_
  bool leaves_type(double largest) const;

  Root& root_;
  DeferredScaling scaling_;
  double factor_ = 1, applied_limit_ = std::numeric_limits<double>::infinity();
  bool written_ = false;
  uint64_t asked_hash_ = 0;
  std::optional<double> loss_scale_;  // of gradients that are still multiplied by it
  double unscaled_by_ = 1;            // of unscale()
  bool known_is_valid_ = false;
  PartialNorm known_, own_;  // of the gradients as they lie in memory: agreed over the ranks, and this rank's part
};

/// [all ranks] The p-norm of each trainable parameter, in the order of ModulePlan::trainable. As Gradients::norms.
std::vector<double> parameter_norms(Root& root, double norm_type);
/// This rank's piece of the value of `trainable`. As Gradients::piece.
at::Tensor parameter_piece(const Root& root, size_t trainable);

/// Throws UsageError unless `norm_type` is in (0, inf].
void check_norm_type(double norm_type);
/// Throws UsageError unless `limit` >= 0; `what` is its name.
void check_limit(const char* what, double limit);

}  // namespace mantissa
