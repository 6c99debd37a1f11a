// The folder of one run, <run.dir>/<run.name>/<UTC time>/, and the files in it that are written whole.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "report/utc_time.h"
#include "train/events.h"

namespace mantissa {

/// A plugin that steps of the run were made with.
struct PluginUse {
  PluginIdentity plugin;
  int64_t from_step = 0;
};

class RunFolder {
 public:
  /// Creates it. Two runs that begin in one second get two folders (the later one ends in -2). Throws UsageError if
  /// that is not possible: exit code 2, as run.dir is the user's.
  RunFolder(const std::filesystem::path& dir, std::string_view run_name,
            const WallClock& clock = std::chrono::system_clock::now);

  /// As given, relative if `dir` is.
  const std::filesystem::path& path() const { return path_; }

  /// The merged config. Both throw Error if the file cannot be written; a file appears whole or not at all.
  void write_config(std::string_view toml) const;
  void write_plugins(const std::vector<PluginUse>& plugins) const;

 private:
  void write(const char* name, std::string_view content) const;

  std::filesystem::path path_;
};

}  // namespace mantissa
