#include "cli/job.h"

#include <functional>

#include "base/error.h"
#include "comm/launcher.h"
#include "data/text.h"
#include "plugin/find.h"
#include "plugin/inspect.h"
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

// Where `key` was written, for the beginning of a message; the file where it has its default.
std::string place_of(const LoadedConfig& loaded, const std::string& key, const std::filesystem::path& file) {
  for (const Setting& setting : loaded.settings) {
    if (setting.key == key && setting.origin != "default") return setting.origin;
  }
  return file.string();
}

// In a process of its own: what a plugin does when it is loaded, a thread or a crash, must not reach the ranks.
void check_plugin_apart(const std::filesystem::path& file, const Config& config) {
  const JobOutcome outcome = launch(1, [&](const LocalRank&) {
    check_plugin(file, config);
    return RankOutcome{};
  });
  if (outcome.exit_code == 0) return;
  const bool crashed = outcome.message.starts_with("rank 0 ");
  throw Error(crashed ? "plugin " + file.string() + " ended the program that loaded it (" + outcome.message + ")"
                      : outcome.message,
              static_cast<ExitCode>(outcome.exit_code));
}

}  // namespace

Job prepare(const JobRequest& request, const Program& program) {
  Job job{load_config(request.config, request.overrides), {}, 0};
  const Config& config = job.loaded.config;
  if (config.train.batch < request.world_size) {
    throw ConfigError({place_of(job.loaded, "train.batch", request.config) + ": train.batch: got " +
                       std::to_string(config.train.batch) + ", need at least the number of ranks, " +
                       std::to_string(request.world_size) + "; every rank must have a row"});
  }
  const TextData data(config.data.path, config.data.heldout, config.model.context);
  if (config.model.init) const SafetensorsFile init(*config.model.init);
  job.plugin_file = find_plugin(config.precision.plugin, from_environment(program.executable));
  const VettedPlugin plugin = vet_plugin(job.plugin_file, {config.precision.sha256, config.plugins.require_pin});
  check_plugin_apart(job.plugin_file, config);
  job.fingerprint = fingerprint_of(job.loaded, plugin.sha256, data.all().size());
  return job;
}

}  // namespace mantissa
