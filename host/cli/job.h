// What a config comes to before any rank is started: everything that can be wrong without ranks is found here.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "config/load.h"
#include "report/progress_bar.h"

namespace mantissa {

/// What all ranks of a job are given.
struct Job {
  LoadedConfig loaded;
  std::filesystem::path plugin_file;
  uint64_t fingerprint = 0;    ///< of what must be the same on every rank: config, text size, plugin
  ProgressOptions progress{};  ///< made before ranks are forked
};

struct JobRequest {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  int world_size = 1;
};

/// Loads the config and opens what it names: text, initial weights, plugin. The plugin is vetted, and loaded in a
/// process of its own, where its options and [clip] are checked; none of its slots is called.
/// Throws ConfigError, UsageError, CheckpointError, PluginRefused.
Job prepare(const JobRequest& request, const Program& program);

}  // namespace mantissa
