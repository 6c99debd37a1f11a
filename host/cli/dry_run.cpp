#include "cli/dry_run.h"

#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "base/log.h"
#include "base/number_text.h"
#include "cli/json.h"
#include "train/dry_run.h"

namespace mantissa {
namespace {

// 10^6 bytes, as everywhere.
std::string megabytes(int64_t bytes) { return grouped(static_cast<double>(bytes) / 1e6) + " MB"; }

// What programs may still take without swapping, bytes; the largest number where the kernel does not tell.
int64_t available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

void warn_if_short(const MemoryEstimate& memory, int local_ranks) {
  const int64_t needed = memory.peak() * local_ranks, available = available_memory();
  if (needed <= available) return;
  log::warning(std::to_string(local_ranks) + (local_ranks == 1 ? " rank needs " : " ranks on this machine need ") +
               megabytes(needed) + ", but " + megabytes(available) +
               " are available: use more machines, a smaller train.batch, or a smaller model");
}

Json to_json(const DryRun& dry) {
  Json units = Json::array();
  for (const PlannedUnit& unit : dry.units)
    units.push_back({{"name", unit.name}, {"parameters", unit.parameters}, {"shard", unit.shard}});
  const MemoryEstimate& m = dry.memory;
  return {{"ok", true},
          {"name", dry.run.name},
          {"steps", dry.run.steps},
          {"world_size", dry.run.world_size},
          {"model", dry.run.model},
          {"num_parameters", dry.run.num_parameters},
          {"plugin", dry.run.plugin.id},
          {"plugin_sha256", dry.run.plugin.sha256},
          {"units", units},
          {"memory_bytes",
           {{"program", m.program},
            {"parameters", m.parameters},
            {"gradients", m.gradients},
            {"optimizer", m.optimizer},
            {"gathered", m.gathered},
            {"in_flight", m.in_flight},
            {"activations", m.activations},
            {"at_start", m.at_start},
            {"peak", m.peak()}}}};
}

void print_units(const std::vector<PlannedUnit>& units) {
  size_t width = 4;
  for (const PlannedUnit& unit : units) width = std::max(width, unit.name.size());
  std::printf("\n%-*s  %14s  %14s\n", static_cast<int>(width), "unit", "parameters", "shard of a rank");
  for (const PlannedUnit& unit : units) {
    std::printf("%-*s  %14s  %14s\n", static_cast<int>(width), unit.name.c_str(), grouped(unit.parameters).c_str(),
                grouped(unit.shard).c_str());
  }
}

void print_memory(const MemoryEstimate& memory) {
  const auto row = [](const char* label, int64_t bytes, const char* what) {
    std::printf("  %-12s %10s  %s\n", label, megabytes(bytes).c_str(), what);
  };
  std::printf("\nmemory of a rank, estimated\n");
  row("program", memory.program, "code, libraries and what they need");
  row("parameters", memory.parameters, "the shards");
  row("gradients", memory.gradients, "of the shards");
  row("optimizer", memory.optimizer, "its state, of the shards");
  row("gathered", memory.gathered, "full parameters, while they are used");
  row("in flight", memory.in_flight, "a unit's gradients, while they are reduced");
  row("activations", memory.activations, "of one micro-batch, measured");
  row("peak", memory.peak(),
      memory.peak() > memory.in_steps() ? "at the start, where the whole model is there once" : "in backward");
}

}  // namespace

void print_dry_run(const Job& job, int world_size, int local_ranks, const Program& program) {
  const DryRun dry = dry_run(job.loaded.config, job.plugin_file, world_size);
  warn_if_short(dry.memory, local_ranks);
  if (program.json) return print(to_json(dry));
  const RunStarted& run = dry.run;
  std::printf("%s would train for %s %s; nothing was started\n", run.name.c_str(), grouped(run.steps).c_str(),
              run.steps == 1 ? "step" : "steps");
  std::printf("  model       %s, %s parameters\n  data        %s\n  ranks       %d, %s\n", run.model.c_str(),
              grouped(run.num_parameters).c_str(), run.data.c_str(), run.world_size,
              run.sharding == "none" ? "not sharded" : "sharded");
  std::printf("  plugin      %s %s (sha256 %s)\n  clip        %s\n", run.plugin.id.c_str(), run.plugin.version.c_str(),
              run.plugin.sha256.substr(0, 12).c_str(), run.clip.c_str());
  print_units(dry.units);
  print_memory(dry.memory);
}

}  // namespace mantissa
