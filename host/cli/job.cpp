#include "cli/job.h"

#include <functional>

#include "base/error.h"
#include "data/text.h"
#include "plugin/find.h"
#include "plugin/vet.h"
#include "weights/safetensors.h"

namespace mantissa {
namespace {

// Paths and the run folder may differ between machines; what is behind the paths may not.
uint64_t fingerprint_of(const LoadedConfig& loaded, const std::string& plugin_sha256, size_t text_size) {
  std::string text = plugin_sha256 + " " + std::to_string(text_size);
  for (const Setting& setting : loaded.settings) {
    const bool local = setting.key == "run.dir" || setting.key == "run.name" || setting.key == "data.path" ||
                       setting.key == "model.init" || setting.key == "precision.plugin";
    if (!local) text += "\n" + setting.key + " = " + setting.value;
  }
  return std::hash<std::string>()(text);
}

}  // namespace

Job prepare(const JobRequest& request, const Program& program) {
  Job job{load_config(request.config, request.overrides), {}, 0};
  const Config& config = job.loaded.config;
  if (config.train.batch < request.world_size) {
    throw ConfigError({request.config.string() + ": train.batch: got " + std::to_string(config.train.batch) +
                       ", need at least the number of ranks, " + std::to_string(request.world_size) +
                       "; every rank must have a row"});
  }
  const TextData data(config.data.path, config.data.heldout, config.model.context);
  if (config.model.init) const SafetensorsFile init(*config.model.init);
  job.plugin_file = find_plugin(config.precision.plugin, from_environment(program.executable));
  const VettedPlugin plugin = vet_plugin(job.plugin_file, {config.precision.sha256, config.plugins.require_pin});
  job.fingerprint = fingerprint_of(job.loaded, plugin.sha256, data.all().size());
  return job;
}

}  // namespace mantissa
