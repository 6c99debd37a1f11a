// Which parameters a root has, and which unit each belongs to; found before anything is sharded, the same on every
// rank.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "mantissa/fully_shard.h"

namespace mantissa {

struct ParameterEntry {
  std::string name;                  ///< fully qualified; the first one of a tied parameter
  std::vector<std::string> aliases;  ///< further names of the same tensor
  at::Tensor tensor;                 ///< the leaf that the module computes with
  std::vector<int64_t> sizes;
  bool trainable = false;
  size_t unit = 0;  ///< index into ModulePlan::units
  bool replicated = false;
};

struct UnitEntry {
  std::string name;            ///< "" for the root
  UnitBase* module = nullptr;  ///< null for the root and for children of a plain Sequential
  bool replicated = false;
  std::vector<size_t> parameters;  ///< indices into ModulePlan::parameters
};

struct ModulePlan {
  std::vector<UnitEntry> units;            ///< the root first, then in the module's order
  std::vector<ParameterEntry> parameters;  ///< in the module's order, tied ones once
  std::vector<size_t> trainable;           ///< indices into parameters: the order that plugins see
  std::vector<size_t> child_units;  ///< of a plain Sequential: the unit of each child, 0 for one without parameters
};

/// Finds units (every Unit<> below `module`, or its children) and parameters. A parameter that the root and a unit
/// share belongs to the root. Throws UsageError: tied across units, nested units, no parameter, unknown name in
/// options.replicate, a type that cannot be sharded.
ModulePlan plan_units(torch::nn::Module& module, bool children_are_units, const ShardOptions& options);

}  // namespace mantissa
