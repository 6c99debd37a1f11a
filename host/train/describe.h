// A run in words, for the screen and the event log.
#pragma once
#include "config/config.h"
#include "fsdp/module_plan.h"
#include "plugin/identity.h"
#include "train/events.h"

namespace mantissa {

class Model;
class Dataset;

struct RunParts {
  const Config& config;
  const Model& model;
  const ModulePlan& plan;
  const Dataset& data;
  const PluginIdentity& plugin;
  int world_size = 1;
};

/// All of RunStarted but the folder.
RunStarted describe_run(const RunParts& parts);

}  // namespace mantissa
