// The trainer: everything a run needs, built in the order of the design, and its loop.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "config/config.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "fsdp/root.h"
#include "grad/gradients.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "plugin/precision.h"
#include "train/events.h"
#include "train/forward.h"
#include "train/phases.h"

namespace mantissa {

/// What one optimizer step came to; the same on every rank.
struct StepResult {
  StepState state;
  double grad_norm_clipped = 0;
  bool norm_is_of_result = true;  ///< false: grad_norm_clipped is that before clamping, as nobody has looked
  double clip_coef = 1;
  double peak_memory = 0;   ///< largest of the ranks, bytes
  uint32_t requests = 0;    ///< Request bits of all ranks
  std::string skip_reason;  ///< empty if the step was taken
  Metrics plugin_metrics;   ///< this rank's
  Metrics unit_norms;       ///< by "grad_norm.UNIT"; of logged steps, if log.unit_norms
};

class Trainer {
 public:
  /// [all ranks] `plugin_file`: found on the search path. Throws what any of its parts throws, on every rank.
  Trainer(const Config& config, const std::filesystem::path& plugin_file, World world);

  /// [all ranks] Runs all steps, tells `listener` (rank 0) and writes weights.safetensors into `folder` (rank 0).
  /// Returns how the run ended.
  RunFinished run(EventListener& listener, const std::filesystem::path& folder);

  /// [all ranks] What is known of a step before its first micro-batch: the plugin names its loss scale. Whatever may
  /// change the plugin or its state comes before it. step() calls it if nobody has.
  void begin_step();
  /// [all ranks] One optimizer step, taken or skipped. `logged`: norms after clipping by value are wanted.
  StepResult step(bool logged);

  RunStarted describe(const std::filesystem::path& folder) const;

 private:
  void backward(const StepState& state, Packet& packet);
  void agree_after_backward(StepState& state, Packet packet);
  StepResult agree_on_decision(StepState& state, bool logged);
  void check_clipped(const StepResult& result) const;
  [[noreturn]] void diverge(const StepState& state);
  Metrics unit_norms();
  void skip(StepResult& result);
  void tell(const StepResult& result, EventListener& listener);
  void check_skips(const StepResult& result) const;
  void log_step(const StepResult& result, EventListener& listener);
  bool is_last(int64_t step) const { return step + 1 == config_.run.steps; }
  bool is_logged(int64_t step) const;
  bool is_evaluated(int64_t step) const;
  int64_t evaluations_from(int64_t step) const;
  double targets_per_step() const {
    return static_cast<double>(config_.train.batch * config_.train.microbatches * data_->targets_per_row());
  }
  std::optional<double> bits_per_byte() const;  // of the last evaluation, if targets are bytes
  double norm_type() const { return config_.clip.kind == ClipKind::norm ? config_.clip.norm_type : 2; }
  Exchange& exchange() { return world_.impl().exchange; }

  Config config_;
  World world_;
  std::unique_ptr<Dataset> data_;
  Sampler sampler_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Precision> precision_;
  std::shared_ptr<Root> root_;
  std::optional<Forward> forward_;
  std::optional<Gradients> gradients_;
  std::optional<Optimizer> optimizer_;

  int64_t step_ = 0, skipped_ = 0, consecutive_skips_ = 0, scale_raised_ = 0, scale_lowered_ = 0;
  std::optional<StepState> next_;  // of begin_step
  Phases phases_, all_phases_;
  double last_loss_ = 0;
  uint64_t nonfinite_ = 0;  // elements of the reduced gradients of this step
  std::optional<double> val_loss_;
};

}  // namespace mantissa
