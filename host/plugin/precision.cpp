#include "plugin/precision.h"

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/number_text.h"

namespace mantissa {
namespace {

constexpr double kUnset = -1;  // no norm is negative

at::ScalarType scalar_type(mts_dtype dtype) {
  switch (dtype) {
    case MTS_DTYPE_NONE: return at::ScalarType::Undefined;
    case MTS_F64: return at::kDouble;
    case MTS_F32: return at::kFloat;
    case MTS_F16: return at::kHalf;
    case MTS_BF16: return at::kBFloat16;
    default: throw PluginRefused("bad-plan", "unknown number format " + std::to_string(dtype) + " in the plan");
  }
}

mts_clip clip_of(const ClipConfig& config) {
  mts_clip clip{};
  clip.header = MTS_HEADER(mts_clip);
  clip.kind = config.kind == ClipKind::norm    ? MTS_CLIP_NORM
              : config.kind == ClipKind::value ? MTS_CLIP_VALUE
                                               : MTS_CLIP_NONE;
  clip.error_if_nonfinite = config.error_if_nonfinite ? 1 : 0;
  clip.limit = config.kind == ClipKind::none ? std::numeric_limits<double>::infinity() : config.limit;
  clip.norm_type = config.kind == ClipKind::norm ? config.norm_type : 2;
  return clip;
}

bool same_norm(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::fabs(a - b) <= 1e-6 * std::fabs(b);
}

}  // namespace

Precision::Precision(PluginLibrary library, std::vector<CheckedOption> options, const ModulePlan& plan,
                     Exchange& exchange, const PluginsConfig& limits)
    : library_(std::move(library)),
      services_(library_.identity().id, plan, exchange, std::move(options)),
      slow_ms_(limits.slow_ms) {
  mts_plan asked{};
  asked.header = MTS_HEADER(mts_plan);
  asked.storage_dtype = asked.param_dtype = asked.reduce_dtype = asked.buffer_dtype = MTS_F32;
  try {
    exchange.agree_after(Operation::create, [&] {
      call(Slot::create, [&] { return library_.table().create(services_.table(), services_.root(), &context_); });
      if (context_ == nullptr) {
        std::rethrow_exception(
            slot_failure(services_.plugin_id(), Slot::create, MTS_INTERNAL, "it returned MTS_OK, but set no context"));
      }
    });
    exchange.agree_after(Operation::plan, [&] {
      call(Slot::plan, [&] { return library_.table().plan(context_, &asked); });
      read_plan(asked);
    });
    agree_on_formats(asked, exchange);
  } catch (...) {
    library_.table().destroy(context_);
    throw;
  }
}

Precision::~Precision() {
  services_.enter(Slot::destroy);
  library_.table().destroy(context_);
}

void Precision::attach(Root& root, Gradients& gradients) {
  gradients_ = &gradients;
  services_.attach(root, gradients);
}

// Calls one slot: the only place where code of a plugin runs.
template <class Call>
void Precision::call(Slot slot, Call call) {
  services_.enter(slot);
  const auto start = std::chrono::steady_clock::now();
  mts_status status = MTS_INTERNAL;
  std::string thrown;
  try {
    status = call();
  } catch (const std::exception& error) {
    thrown = std::string("an exception came out of the slot (") + error.what() + "); a plugin must catch its own";
  } catch (...) {
    thrown = "an exception came out of the slot; a plugin must catch its own";
  }
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  status = services_.leave(status);
  if (status != MTS_OK)
    std::rethrow_exception(
        slot_failure(services_.plugin_id(), slot, status, thrown.empty() ? services_.text() : thrown));
  if (ms > slow_ms_ && slow_slots_.insert(slot).second) {
    const std::string who = "plugin " + services_.plugin_id() + ": " + name(slot);
    log::warning_about(who, who + " took " + short_text(ms, 9) +
                                " ms, more than plugins.slow_ms = " + short_text(slow_ms_, 9) +
                                "; every step waits for it: use a faster plugin, or raise plugins.slow_ms");
  }
}

void Precision::read_plan(const mts_plan& plan) {
  const auto refuse = [&](const std::string& why) {
    throw PluginRefused("bad-plan", "plugin " + services_.plugin_id() + " asks for " + why);
  };
  formats_ = {scalar_type(plan.storage_dtype),
              scalar_type(plan.param_dtype),
              scalar_type(plan.reduce_dtype),
              scalar_type(plan.buffer_dtype),
              scalar_type(plan.input_dtype),
              scalar_type(plan.autocast_dtype),
              plan.scales_loss != 0};
  const auto named = [](const char* what, at::ScalarType dtype) {
    return std::string(what) + " " + c10::toString(dtype);
  };
  if (formats_.storage_dtype != at::kFloat && formats_.storage_dtype != at::kDouble) {
    refuse(named("storage_dtype", formats_.storage_dtype) + "; shards and optimizer state are kept as Float or Double");
  }
  for (const auto& [what, dtype] : {std::pair{"param_dtype", formats_.param_dtype},
                                    {"reduce_dtype", formats_.reduce_dtype},
                                    {"buffer_dtype", formats_.buffer_dtype}}) {
    if (dtype == at::ScalarType::Undefined) refuse(std::string("no ") + what + "; only inputs may be left as they are");
    if (c10::elementSize(dtype) > c10::elementSize(formats_.storage_dtype))
      refuse(named(what, dtype) + ", which is wider than " + named("storage_dtype", formats_.storage_dtype));
  }
  if (formats_.reduce_dtype == at::kHalf && !formats_.scales_loss)
    refuse("reduce_dtype Half without loss scaling: gradients leave its range; use BFloat16 or Float");
  if (formats_.autocast_dtype != at::ScalarType::Undefined) {
    if (c10::elementSize(formats_.autocast_dtype) != 2)
      refuse(named("autocast_dtype", formats_.autocast_dtype) + "; autocast is to BFloat16 or Half");
    if (formats_.param_dtype != at::kFloat)
      refuse("autocast with " + named("param_dtype", formats_.param_dtype) + "; autocast needs Float parameters");
  }
  if (plan.scales_loss != 0 && plan.scales_loss != 1)
    refuse("scales_loss " + std::to_string(plan.scales_loss) + ", need 0 or 1");
}

void Precision::agree_on_formats(const mts_plan& plan, Exchange& exchange) {
  const std::vector<double> mine{double(plan.storage_dtype), double(plan.param_dtype), double(plan.reduce_dtype),
                                 double(plan.buffer_dtype),  double(plan.input_dtype), double(plan.autocast_dtype),
                                 double(plan.scales_loss)};
  std::vector<double> smallest = mine, largest = mine;
  exchange.all_reduce(smallest, ReduceOp::min);
  exchange.all_reduce(largest, ReduceOp::max);
  if (smallest != largest)
    throw PluginRefused("bad-plan",
                        "plugin " + services_.plugin_id() +
                            " asks for different number formats on different ranks; a plan must be the same on all");
}

mts_step Precision::step_of(const StepState& state) const {
  mts_step step{};
  step.header = MTS_HEADER(mts_step);
  step.root = services_.root();
  step.index = state.index;
  step.num_microbatches = state.num_microbatches;
  step.found_inf = state.found_inf ? 1 : 0;
  step.loss_scale = state.loss_scale;
  step.loss = state.loss;
  step.learning_rate = state.learning_rate;
  step.total_norm = state.total_norm;
  step.decision = static_cast<mts_decision>(state.decision);
  return step;
}

double Precision::loss_scale(const StepState& state) {
  if (!formats_.scales_loss || !MTS_HAS(mts_precision, &library_.table(), loss_scale)) return 1;
  mts_step step = step_of(state);
  step.loss_scale = std::numeric_limits<double>::quiet_NaN();  // not known yet
  double scale = std::numeric_limits<double>::quiet_NaN();
  call(Slot::loss_scale, [&] { return library_.table().loss_scale(context_, &step, &scale); });
  if (!(scale > 0) || scale > std::numeric_limits<float>::max() ||
      static_cast<double>(static_cast<float>(scale)) != scale) {
    throw Error("plugin " + services_.plugin_id() + ": loss_scale returned " + short_text(scale, 17) +
                ", need a number > 0 that float32 holds exactly; round it to float first");
  }
  return scale;
}

bool Precision::unscale(const StepState& state) {
  if (!formats_.scales_loss) return false;
  if (!MTS_HAS(mts_precision, &library_.table(), unscale)) return gradients_->unscale(state.loss_scale);
  const mts_step step = step_of(state);
  int32_t found_inf = -1;
  call(Slot::unscale, [&] { return library_.table().unscale(context_, &step, &found_inf); });
  const std::string who = "plugin " + services_.plugin_id() + ": unscale ";
  if (gradients_->awaits_unscale())
    throw Error(who + "did not call unscale_grads; the gradients are still multiplied by the loss scale");
  if (found_inf != 0 && found_inf != 1) throw Error(who + "did not set found_inf to 0 or 1");
  return found_inf != 0;
}

double Precision::clip(const StepState& state, const ClipConfig& config, double norm) {
  const mts_step step = step_of(state);
  const mts_clip clip = clip_of(config);
  double total_norm = kUnset;
  if (MTS_HAS(mts_precision, &library_.table(), clip)) {
    call(Slot::clip, [&] { return library_.table().clip(context_, &step, &clip, &total_norm); });
  } else {
    total_norm = clip_by_default(clip);
  }
  const std::string who = "plugin " + services_.plugin_id() + ": clip ";
  if (total_norm == kUnset) throw Error(who + "did not set total_norm; it must be the norm before clipping");
  if (!same_norm(total_norm, norm)) {
    throw Error(who + "returned total_norm " + short_text(total_norm, 9) + ", but the norm before clipping, of type " +
                short_text(clip.norm_type, 9) + ", is " + short_text(norm, 9));
  }
  if (clip.kind == MTS_CLIP_VALUE && gradients_->limit() > clip.limit && std::isfinite(norm) &&
      !gradients_->written_to()) {
    throw Error(who + "left the gradients unclamped, but [clip] asks for value = " + short_text(clip.limit, 9));
  }
  return norm;
}

double Precision::clip_by_default(const mts_clip& clip) {
  if (clip.kind == MTS_CLIP_NORM) return gradients_->clip_norm(clip.limit, clip.norm_type);
  const double norm = gradients_->norm(2);
  if (clip.kind == MTS_CLIP_VALUE) gradients_->clip_value(clip.limit);
  return norm;
}

Decision Precision::decide(const StepState& state) {
  mts_decision decision = state.found_inf || !std::isfinite(state.total_norm) ? MTS_SKIP : MTS_STEP;
  if (MTS_HAS(mts_precision, &library_.table(), decide)) {
    const mts_step step = step_of(state);
    call(Slot::decide, [&] { return library_.table().decide(context_, &step, &decision); });
    abort_reason_ = services_.text();
  }
  return decision == MTS_STEP ? Decision::step : decision == MTS_SKIP ? Decision::skip : Decision::abort;
}

void Precision::update(const StepState& state) {
  if (!MTS_HAS(mts_precision, &library_.table(), update)) return;
  const mts_step step = step_of(state);
  call(Slot::update, [&] { return library_.table().update(context_, &step); });
}

}  // namespace mantissa
