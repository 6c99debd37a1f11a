#include "cli/job.h"

#include <functional>
#include <memory>

#include "base/error.h"
#include "comm/launcher.h"
#include "plugin/find.h"
#include "plugin/inspect.h"
#include "plugin/vet.h"
#include "train/open_data.h"
#include "weights/safetensors.h"

namespace mantissa {
namespace {

// Paths and the run folder may differ between machines; what is behind the paths may not.
uint64_t fingerprint_of(const LoadedConfig& loaded, const std::string& plugin_sha256, uint64_t text_size) {
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

std::unique_ptr<Dataset> open_named_data(const LoadedConfig& loaded, const std::filesystem::path& file) {
  try {
    return open_data(loaded.config);
  } catch (const UsageError& error) {  // "data.path: ..."
    throw ConfigError({place_of(loaded, "data.path", file) + ": " + error.what()});
  }
}

void open_initial_weights(const LoadedConfig& loaded, const std::filesystem::path& file) {
  try {
    const SafetensorsFile init(*loaded.config.model.init);
  } catch (const CheckpointError& error) {
    throw CheckpointError(place_of(loaded, "model.init", file) + ": model.init: " + error.what());
  }
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
  Job job{load_config(request.config, request.overrides), {}, 0, {}};
  job.progress.color = program.color;
  job.progress.quiet = program.quiet;
  const Config& config = job.loaded.config;
  if (config.train.batch < request.world_size) {
    throw ConfigError({place_of(job.loaded, "train.batch", request.config) + ": train.batch: got " +
                       std::to_string(config.train.batch) + ", need at least the number of ranks, " +
                       std::to_string(request.world_size) + "; every rank must have a row"});
  }
  const uint64_t data_size = open_named_data(job.loaded, request.config)->file_size();
  if (config.model.init) open_initial_weights(job.loaded, request.config);
  job.plugin_file = find_plugin(config.precision.plugin, from_environment(program.executable));
  const VettedPlugin plugin = vet_plugin(job.plugin_file, {config.precision.sha256, config.plugins.require_pin});
  check_plugin_apart(job.plugin_file, config);
  job.fingerprint = fingerprint_of(job.loaded, plugin.sha256, data_size);
  return job;
}

}  // namespace mantissa
