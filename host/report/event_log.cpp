#include "report/event_log.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/number_text.h"

namespace mantissa {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isfinite(value)) return value;
  return Json::parse(json_number(value));
}

// A cause may quote a file with any bytes in it.
std::string text_of(const Json& event) { return event.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json event_at(const WallClock& clock, const char* kind) { return {{"time", utc_text(clock())}, {"event", kind}}; }

}  // namespace

void EventLog::started(const RunStarted& run) {
  Json event = event_at(clock_, "start");
  event["name"] = run.name;
  event["steps"] = run.steps;
  event["world_size"] = run.world_size;
  event["model"] = run.model;
  event["num_parameters"] = run.num_parameters;
  event["sharding"] = run.sharding;
  event["data"] = run.data;
  event["plugin"] = {{"id", run.plugin.id}, {"version", run.plugin.version}, {"sha256", run.plugin.sha256}};
  event["clip"] = run.clip;
  file_.append(text_of(event));
}

void EventLog::skipped(const StepSkipped& skip) {
  Json event = event_at(clock_, "skip");
  event["step"] = skip.step;
  event["reason"] = skip.reason;
  event["grad_norm"] = number(skip.grad_norm);
  event["loss_scale"] = number(skip.loss_scale);
  if (skip.loss_scale_after) event["loss_scale_after"] = number(*skip.loss_scale_after);
  file_.append(text_of(event));
}

void EventLog::finished(const RunFinished& run) {
  Json event = event_at(clock_, "stop");
  event["exit_code"] = static_cast<int>(exit_code_of(run));
  if (!run.stopped_by.empty()) event["stopped_by"] = run.stopped_by;
  event["steps"] = run.steps;
  event["skipped"] = run.skipped;
  if (run.loss_scale) {
    event["loss_scale"] = number(*run.loss_scale);
    event["loss_scale_raised"] = run.scale_raised;
    event["loss_scale_lowered"] = run.scale_lowered;
  }
  event["seconds"] = number(run.seconds);
  event["train_loss"] = number(run.train_loss);
  if (run.val_loss) event["val_loss"] = number(*run.val_loss);
  if (run.val_bits_per_byte) event["val_bits_per_byte"] = number(*run.val_bits_per_byte);
  file_.append(text_of(event));
}

void EventLog::failed(const std::string& cause, int exit_code) {
  Json event = event_at(clock_, "stop");
  event["exit_code"] = exit_code;
  event["cause"] = cause;
  file_.append(text_of(event));
}

}  // namespace mantissa
