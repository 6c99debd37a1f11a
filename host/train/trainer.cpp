#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

#include <ATen/Parallel.h>
#include <sys/resource.h>
#include <torch/nn/module.h>

#include "base/error.h"
#include "base/log.h"
#include "base/number_text.h"
#include "optim/schedule.h"
#include "train/describe.h"
#include "train/evaluate.h"
#include "train/generate.h"
#include "train/open_data.h"
#include "train/shard_options.h"
#include "train/stop_request.h"
#include "train/tensors.h"
#include "train/weights_io.h"

namespace mantissa {
namespace {

double peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace

Trainer::Trainer(const Config& config, const std::filesystem::path& plugin_file, World world)
    : config_(config),
      world_(std::move(world)),
      data_(open_data(config)),
      sampler_({config.run.seed, config.train.batch, config.train.microbatches, data_->num_rows()}) {
  at::set_num_threads(static_cast<int>(config_.distributed.threads));
  model_ = make_model(config_.model, config_.data, config_.run.seed);
  const ModulePlan plan = plan_units(*model_->module(), false, shard_options(config_.fsdp, {}));

  std::optional<ConfiguredPlugin> plugin;
  exchange().agree_after(Operation::load_plugin, [&] {
    plugin.emplace(load_configured_plugin(plugin_file, config_));
    if (world_.rank() == 0 && config_.model.init) load_weights(*model_->module(), *config_.model.init);
  });
  precision_ = std::make_unique<Precision>(std::move(plugin->library), std::move(plugin->options), plan, exchange(),
                                           config_.plugins);

  root_ = Root::shard(model_->module(), plan, world_, shard_options(config_.fsdp, precision_->formats()));
  root_->set_norm_type(norm_type());
  forward_.emplace(*root_, *model_, precision_->formats());
  gradients_.emplace(*root_);
  precision_->attach(*root_, *gradients_);
  optimizer_.emplace(*root_, config_.optimizer);
}

// ---- one step

void Trainer::begin_step() {
  StepState& state = next_.emplace();
  state.index = static_cast<uint64_t>(step_);
  state.num_microbatches = static_cast<uint32_t>(config_.train.microbatches);
  state.learning_rate =
      learning_rate(config_.schedule, config_.optimizer.lr, optimizer_->taken_steps(), config_.run.steps);
  exchange().attempt([&] { state.loss_scale = precision_->loss_scale(state); });  // a failure travels in the next one
}

StepResult Trainer::step(bool logged) {
  const Stopwatch stopwatch(phases_.step);
  const double comm_before = root_->transport().seconds();
  if (!next_) begin_step();
  StepState state = *std::exchange(next_, std::nullopt);
  Packet packet;
  backward(state, packet);
  agree_after_backward(state, packet);
  StepResult result = agree_on_decision(state, logged);
  check_clipped(result);
  if (logged && config_.log.unit_norms) result.unit_norms = unit_norms();

  if (result.state.decision == Decision::step) {
    const Stopwatch optimizing(phases_.optimizer);
    optimizer_->step(state.learning_rate, gradients_->scaling());
    consecutive_skips_ = 0;
  } else {
    skip(result);
  }
  exchange().attempt([&] { precision_->update(result.state); });  // a failure travels in the next exchange
  result.plugin_metrics = precision_->take_metrics();
  root_->publish();
  root_->clear_gradients();
  ++step_;
  ++phases_.steps;
  phases_.comm_s += root_->transport().seconds() - comm_before;
  return result;
}

void Trainer::backward(const StepState& state, Packet& packet) {
  const Share share{world_.rank(), world_.size()};
  root_->reset_call_hash();
  for (int64_t m = 0; m < config_.train.microbatches; ++m) {
    Batch batch = data_->rows(sampler_.rows_of(step_, m, share));
    const BatchTensors tensors = tensors_of(batch);
    root_->set_last_microbatch(m + 1 == config_.train.microbatches);
    at::Tensor loss;
    {
      const Stopwatch stopwatch(phases_.forward);
      loss = loss_sum((*forward_)(tensors.inputs), tensors.targets);
      packet.loss_sum += loss.item<double>();
      packet.loss_weight += static_cast<double>(batch.num_targets);
    }
    const Stopwatch stopwatch(phases_.backward);
    // The engine averages over ranks, so the mean over all targets of the step is the sum times world_size / targets.
    (loss * (state.loss_scale * world_.size() / targets_per_step())).backward();
  }
}

void Trainer::agree_after_backward(StepState& state, Packet packet) {
  packet.loss_scale = state.loss_scale;
  packet.fingerprint = root_->call_hash();
  packet.peak_memory = peak_memory();
  packet.set_norm(root_->partial_norm());
  const Agreed agreed = exchange().agree(Operation::backward, packet);
  state.loss = agreed.loss_sum / agreed.loss_weight;
  nonfinite_ = agreed.norm.nonfinite;
  if (precision_->formats().scales_loss) {
    gradients_->begin_scaled_step(agreed.norm, state.loss_scale);
  } else {
    gradients_->begin_step(agreed.norm);
  }
}

// unscale, clip, decide: what fails on one rank travels with the decision.
StepResult Trainer::agree_on_decision(StepState& state, bool logged) {
  StepResult result;
  Packet packet;
  double norm = 0;
  exchange().attempt([&] {
    state.found_inf = precision_->unscale(state);
    norm = gradients_->norm(norm_type());  // known since the exchange: nothing is sent
    state.total_norm = precision_->clip(state, config_.clip, norm);
    const bool clamps = gradients_->scaling().clamps();
    const bool look =
        !gradients_->norm_is_known(norm_type()) || (clamps && (logged || config_.clip.kind == ClipKind::norm));
    if (look || !clamps) packet.set_norm(gradients_->partial_norm_scaled(norm_type()));
    packet.norm_measured = look ? 1 : 0;
    packet.found_inf = state.found_inf ? 1 : 0;
    packet.decision = static_cast<int32_t>(precision_->decide(state));
    packet.requests = requested_stops();
    packet.fingerprint = gradients_->asked_hash();
  });
  packet.norm_type = norm_type();
  packet.peak_memory = peak_memory();
  const Agreed agreed = exchange().agree(Operation::decide, packet);
  state.decision = static_cast<Decision>(agreed.decision);
  state.found_inf = agreed.found_inf;
  if (!state.found_inf && config_.clip.error_if_nonfinite && !std::isfinite(norm)) diverge(state);
  if (state.decision == Decision::abort) {
    const std::string reason = precision_->abort_reason();
    throw Diverged("step " + std::to_string(step_) + ": plugin " + precision_->identity().id + " gave up" +
                   (reason.empty() ? "" : ": " + reason));
  }
  result.state = state;
  result.clip_coef = gradients_->factor();
  result.norm_is_of_result = agreed.norm_measured || !gradients_->scaling().clamps();
  result.grad_norm_clipped = agreed.norm_measured ? agreed.norm.value() : gradients_->norm_scaled();
  result.peak_memory = agreed.peak_memory;
  result.requests = agreed.requests;
  return result;
}

void Trainer::check_clipped(const StepResult& result) const {
  const double norm = result.grad_norm_clipped;
  const std::string who = "step " + std::to_string(step_) + ": plugin " + precision_->identity().id;
  if (result.state.decision != Decision::step) return;
  const bool overflows =
      gradients_->norm_is_known(norm_type()) && !gradients_->scaling().clamps() && gradients_->overflows();
  if (result.norm_is_of_result ? !std::isfinite(norm) || overflows : std::isnan(norm)) {  // clamping bounds infinity
    throw Error(who + " decided to take the step, but the gradients' norm is " + short_text(norm, 6) +
                "; such a step would spoil the parameters: skip it");
  }
  if (config_.clip.kind != ClipKind::norm || !std::isfinite(norm) || norm <= config_.clip.limit * (1 + 1e-6)) return;
  throw Error(who + " clipped less than [clip] asks: the gradients' norm is " + short_text(norm, 6) +
              " after clipping, need at most max_norm = " + short_text(config_.clip.limit, 6) +
              "; use another plugin, or leave out [clip]");
}

void Trainer::diverge(const StepState& state) {
  constexpr size_t kNamed = 8;
  const std::vector<NonfiniteParameter> found = gradients_->nonfinite_parameters();
  std::string holders;
  for (size_t i = 0; i < std::min(found.size(), kNamed); ++i) {
    holders += (holders.empty() ? "" : ", ") + found[i].name + " (" + std::to_string(found[i].count) +
               (found[i].count == 1 ? " at index " : ", first at index ") + std::to_string(found[i].first) + ")";
  }
  if (found.size() > kNamed) holders += " and " + std::to_string(found.size() - kNamed) + " more parameters";
  const std::string what =
      "step " + std::to_string(step_) + ": the gradients' norm is " + short_text(state.total_norm, 6);
  if (found.empty() && nonfinite_ > 0) {
    throw Diverged(what + ": " + std::to_string(nonfinite_) +
                   " elements were not finite when they were reduced; plugin " + precision_->identity().id +
                   " has changed them since. Set clip.error_if_nonfinite = false to let it");
  }
  if (found.empty()) {
    throw Diverged(what + ", though every gradient is finite: their norm of type " + short_text(norm_type(), 6) +
                   " leaves float64; use a larger clip.norm_type");
  }
  throw Diverged(what + "; elements that are not finite: " + holders +
                 ". Lower the learning rate, clip, or set clip.error_if_nonfinite = false to skip such steps" +
                 (config_.clip.kind == ClipKind::none ? " (with clip.max_norm = inf, to clip nothing)" : ""));
}

Metrics Trainer::unit_norms() {
  Metrics metrics;
  const std::vector<UnitEntry>& units = root_->plan().units;
  const std::vector<double> norms = gradients_->unit_norms();
  for (size_t unit = 0; unit < units.size(); ++unit)
    metrics["grad_norm." + (units[unit].name.empty() ? "root" : units[unit].name)] = norms[unit];
  return metrics;
}

void Trainer::skip(StepResult& result) {
  ++skipped_;
  ++consecutive_skips_;
  result.skip_reason = result.state.found_inf ? "found_inf"
                       : std::isfinite(result.state.total_norm)
                           ? "plugin"
                           : "grad_norm is " + short_text(result.state.total_norm, 6);
}

void Trainer::check_skips(const StepResult& result) const {
  if (consecutive_skips_ < config_.train.max_consecutive_skips) return;
  throw Diverged("step " + std::to_string(result.state.index) + ": " + std::to_string(consecutive_skips_) +
                 (consecutive_skips_ == 1 ? " step was" : " steps in a row were") + " skipped (" + result.skip_reason +
                 "), as many as train.max_consecutive_skips allows");
}

// ---- the loop

RunFinished Trainer::run(EventListener& listener, const std::filesystem::path& folder) {
  const auto start = std::chrono::steady_clock::now();
  RunFinished finished;
  uint32_t requests = 0;
  while (step_ < config_.run.steps && requests == 0) {
    const Phases::Duration before = phases_.step;
    const StepResult result = step(is_logged(step_));
    if (step_ < config_.run.steps && result.requests == 0) begin_step();
    listener.ticked({static_cast<int64_t>(result.state.index), result.state.loss, result.state.total_norm,
                     (phases_.step - before).count(), evaluations_from(step_ - 1), skipped_});
    tell(result, listener);
    check_skips(result);
    requests = result.requests;
    last_loss_ = result.state.loss;
    if (precision_->formats().scales_loss) finished.loss_scale = result.state.loss_scale;
    finished.memory_mb = result.peak_memory / 1e6;
  }
  exchange().agree(Operation::finish);  // what the last update failed with
  finished.steps = step_;
  finished.skipped = skipped_;
  finished.scale_raised = scale_raised_;
  finished.scale_lowered = scale_lowered_;
  finished.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  all_phases_.step += phases_.step;  // of steps after the last row
  finished.tokens_per_s = static_cast<double>(step_) * targets_per_step() / all_phases_.step.count();
  finished.train_loss = last_loss_;
  if (world_.rank() == 0 && skipped_ == step_ && step_ > 0)
    log::warning("every step was skipped: the weights are still those that training began with");
  if (world_.rank() == 0 && !std::isfinite(last_loss_))
    log::warning("the loss of the last step is " + short_text(last_loss_, 6) + ": the run has diverged");
  if (requests != 0) {
    finished.stopped_by = name_of_stop(requests);
    return finished;
  }
  finished.val_loss = val_loss_;
  finished.val_bits_per_byte = bits_per_byte();
  finished.weights = folder / "weights.safetensors";
  save_weights(*root_, finished.weights);
  if (config_.sample) finished.sample = generate_text(*forward_, *config_.sample, config_.model.context);
  exchange().agree(Operation::finish);  // nobody leaves while others still gather
  return finished;
}

// What a step came to. The next one has begun, so that a new loss scale is known.
void Trainer::tell(const StepResult& result, EventListener& listener) {
  const double scale = result.state.loss_scale;
  const std::optional<double> scale_after = next_ ? std::optional(next_->loss_scale) : std::nullopt;
  if (!result.skip_reason.empty()) {
    listener.skipped(
        {static_cast<int64_t>(result.state.index), result.skip_reason, result.state.total_norm, scale, scale_after});
  }
  if (scale_after && *scale_after > scale) ++scale_raised_;
  if (scale_after && *scale_after < scale) ++scale_lowered_;
  log_step(result, listener);
}

bool Trainer::is_logged(int64_t step) const {
  return step == 0 || (step + 1) % config_.log.every == 0 || is_last(step) || is_evaluated(step);
}

bool Trainer::is_evaluated(int64_t step) const {
  if (data_->num_heldout_rows() == 0) return false;
  return is_last(step) || (config_.train.eval_every > 0 && (step + 1) % config_.train.eval_every == 0);
}

// How often is_evaluated holds from `step` on.
int64_t Trainer::evaluations_from(int64_t step) const {
  if (data_->num_heldout_rows() == 0) return 0;
  const int64_t every = config_.train.eval_every, steps = config_.run.steps;
  return every == 0 ? 1 : (steps + every - 1) / every - step / every;
}

void Trainer::log_step(const StepResult& result, EventListener& listener) {
  const auto step = static_cast<int64_t>(result.state.index);
  if (!is_logged(step)) return;
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = result.state.loss;
  metrics.grad_norm = result.state.total_norm;
  metrics.grad_norm_clipped = result.grad_norm_clipped;
  metrics.clip_coef = result.clip_coef;
  metrics.loss_scale = result.state.loss_scale;
  metrics.skipped_total = skipped_;
  metrics.lr = result.state.learning_rate;
  metrics.memory_mb = result.peak_memory / 1e6;
  metrics.more = result.unit_norms;
  metrics.more.insert(result.plugin_metrics.begin(), result.plugin_metrics.end());

  const auto steps = static_cast<double>(phases_.steps);
  const auto mean_ms = [&](Phases::Duration total) { return total.count() * 1e3 / steps; };
  metrics.tokens_per_s = steps * targets_per_step() / phases_.step.count();
  metrics.step_ms = mean_ms(phases_.step);
  metrics.forward_ms = mean_ms(phases_.forward);
  metrics.backward_ms = mean_ms(phases_.backward);
  metrics.optimizer_ms = mean_ms(phases_.optimizer);
  metrics.comm_ms = phases_.comm_s * 1e3 / steps;
  all_phases_.step += phases_.step;
  phases_ = {};

  if (is_evaluated(step)) {
    val_loss_ = evaluate(*forward_, *data_, std::max<int64_t>(1, config_.train.batch / world_.size()));
    metrics.val_loss = val_loss_;
    metrics.val_bits_per_byte = bits_per_byte();
  }
  listener.stepped(metrics);
}

std::optional<double> Trainer::bits_per_byte() const {
  if (!val_loss_ || !data_->is_text()) return std::nullopt;
  return *val_loss_ / std::numbers::ln2;
}

RunStarted Trainer::describe(const std::filesystem::path& folder) const {
  RunStarted started = describe_run({config_, *model_, root_->plan(), *data_, precision_->identity(), world_.size()});
  started.folder = folder;
  started.tokens_per_step = targets_per_step();
  return started;
}

}  // namespace mantissa
