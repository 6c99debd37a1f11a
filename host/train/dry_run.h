// What a run will be, found without starting it: the plan of units and the memory of a rank.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"
#include "train/events.h"
#include "train/memory_estimate.h"

namespace mantissa {

struct PlannedUnit {
  std::string name;        ///< "(root)" for what is in no unit
  int64_t parameters = 0;  ///< elements, without padding
  int64_t shard = 0;       ///< elements that a rank keeps of it
};

struct DryRun {
  RunStarted run;  ///< without a folder
  std::vector<PlannedUnit> units;
  MemoryEstimate memory;
};

/// Builds the model, loads the plugin and lets it plan (as one rank, whatever `world_size`), and runs one forward to
/// measure its activations. No rank is started and no file is written. Throws what a run would throw.
DryRun dry_run(const Config& config, const std::filesystem::path& plugin_file, int world_size);

}  // namespace mantissa
