// A precision plugin at work: RAII over its context, and the one place where its slots are called.
//
// Every call is guarded, timed and turned into an exception if it fails. The caller agrees on the outcome over the
// ranks at its next exchange (comm/exchange.h).
#pragma once
#include <memory>
#include <set>
#include <string>

#include "config/config.h"
#include "plugin/library.h"
#include "plugin/services.h"
#include "plugin/step_state.h"

namespace mantissa {

/// What a plugin asks for in its plan.
struct NumberFormats {
  at::ScalarType storage_dtype = at::kFloat, param_dtype = at::kFloat, reduce_dtype = at::kFloat,
                 buffer_dtype = at::kFloat;
  at::ScalarType input_dtype = at::ScalarType::Undefined;     ///< of floating-point inputs; Undefined: left as they are
  at::ScalarType autocast_dtype = at::ScalarType::Undefined;  ///< Undefined: no autocast
  bool scales_loss = false;                                   ///< loss_scale and unscale are in use
};

class Precision {
 public:
  /// [all ranks] Creates a context and asks for its plan; `plan` is that of the root, before sharding.
  /// Throws PluginRefused: create-failed, bad-plan; on every rank if on one.
  Precision(PluginLibrary library, std::vector<CheckedOption> options, const ModulePlan& plan, Exchange& exchange,
            const PluginsConfig& limits);
  ~Precision();
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;

  const PluginIdentity& identity() const { return library_.identity(); }
  const NumberFormats& formats() const { return formats_; }

  /// The root is sharded; steps may begin.
  void attach(Root& root, Gradients& gradients);

  // The slots of one step, in this order. Each throws Error or Diverged if the slot fails on this rank.
  /// A float32 > 0; 1 if the plan does not scale the loss.
  double loss_scale(const StepState& step);
  /// Unscales the gradients, if their loss was scaled, and returns found_inf.
  bool unscale(const StepState& step);
  /// Returns the norm before clipping, checked against the host's own `norm`.
  double clip(const StepState& step, const ClipConfig& clip, double norm);
  Decision decide(const StepState& step);
  void update(const StepState& step);

  /// What the plugin reported by metric() in the slots since the last call, by "id.key".
  Metrics take_metrics() { return services_.take_metrics(); }

  /// What the plugin said when it asked to abort; empty if nothing.
  const std::string& abort_reason() const { return abort_reason_; }

 private:
  template <class Call>
  void call(Slot slot, Call call);
  mts_step step_of(const StepState& step) const;
  double clip_by_default(const mts_clip& clip);
  void read_plan(const mts_plan& plan);
  void agree_on_formats(const mts_plan& plan, Exchange& exchange);

  PluginLibrary library_;
  HostServices services_;
  double slow_ms_;
  NumberFormats formats_;
  mts_context* context_ = nullptr;
  Gradients* gradients_ = nullptr;
  std::set<Slot> slow_slots_;
  std::string abort_reason_;
};

}  // namespace mantissa
