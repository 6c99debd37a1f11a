#include "train/describe.h"

#include "base/number_text.h"
#include "data/dataset.h"
#include "model/model.h"

namespace mantissa {
namespace {

std::string clip_text(const ClipConfig& clip) {
  switch (clip.kind) {
    case ClipKind::none: return "none";
    case ClipKind::norm:
      return "max_norm = " + short_text(clip.limit, 6) + " (p = " + short_text(clip.norm_type, 6) + ")";
    case ClipKind::value: return "value = " + short_text(clip.limit, 6);
  }
  return "";
}

}  // namespace

RunStarted describe_run(const RunParts& parts) {
  RunStarted run;
  run.name = parts.config.run.name;
  run.steps = parts.config.run.steps;
  run.world_size = parts.world_size;
  run.model = parts.model.describe();
  for (size_t i : parts.plan.trainable) {
    int64_t numel = 1;
    for (int64_t size : parts.plan.parameters[i].sizes) numel *= size;
    run.num_parameters += numel;
  }
  run.sharding = parts.config.fsdp.full ? "full" : "none";
  run.data = parts.data.describe();
  run.token_word = parts.data.is_text() ? "token" : "row";
  run.plugin = parts.plugin;
  run.plugin_name = parts.config.precision.plugin;
  run.clip = clip_text(parts.config.clip);
  return run;
}

}  // namespace mantissa
