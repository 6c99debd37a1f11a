#include "fsdp/module_plan.h"

#include <algorithm>
#include <map>

#include <torch/nn/module.h>

#include "base/error.h"

namespace mantissa {
namespace {

// Every place where one tensor stands: its names and the units they lie in, in the module's order.
struct Places {
  std::vector<std::string> names;
  std::vector<size_t> units;
};

bool lies_in(const std::string& name, const std::string& unit) {
  return !unit.empty() && name.compare(0, unit.size() + 1, unit + ".") == 0;
}

std::vector<UnitEntry> find_units(torch::nn::Module& module, bool children_are_units) {
  std::vector<UnitEntry> units{UnitEntry{}};
  if (children_are_units) {
    for (const auto& child : module.named_children()) {
      if (!child.value()->parameters().empty())
        units.push_back({child.key(), dynamic_cast<UnitBase*>(child.value().get()), false, {}});
    }
    return units;
  }
  for (const auto& child : module.named_modules("", /*include_self=*/false)) {
    auto* unit = dynamic_cast<UnitBase*>(child.value().get());
    if (unit == nullptr || child.value()->parameters().empty()) continue;
    if (unit->attached()) throw UsageError("unit \"" + child.key() + "\" is sharded already; shard a module once");
    for (const UnitEntry& outer : units) {
      if (lies_in(child.key(), outer.name)) {
        throw UsageError("unit \"" + child.key() + "\" lies inside unit \"" + outer.name +
                         "\"; units cannot be nested: wrap one of them only");
      }
    }
    units.push_back({child.key(), unit, false, {}});
  }
  return units;
}

std::vector<size_t> children_to_units(torch::nn::Module& module, const std::vector<UnitEntry>& units) {
  std::vector<size_t> children;
  for (const auto& child : module.named_children()) {
    size_t found = 0;
    for (size_t i = 1; i < units.size(); ++i) {
      if (units[i].name == child.key()) found = i;
    }
    children.push_back(found);
  }
  return children;
}

void mark_replicated(std::vector<UnitEntry>& units, const ShardOptions& options) {
  for (UnitEntry& unit : units) unit.replicated = options.sharding == Sharding::none;
  for (const std::string& name : options.replicate) {
    const auto unit =
        std::find_if(units.begin(), units.end(), [&](const UnitEntry& entry) { return entry.name == name; });
    if (unit == units.end())
      throw UsageError("replicate names \"" + name +
                       "\", which is no unit of this root; units are the modules wrapped in Unit<>");
    unit->replicated = true;
  }
}

size_t unit_of(const std::string& name, const std::vector<UnitEntry>& units) {
  for (size_t i = 1; i < units.size(); ++i) {
    if (lies_in(name, units[i].name)) return i;
  }
  return 0;
}

size_t owner(const Places& places, const std::vector<UnitEntry>& units) {
  if (std::count(places.units.begin(), places.units.end(), 0u) > 0) return 0;
  for (size_t i = 1; i < places.units.size(); ++i) {
    if (places.units[i] != places.units[0]) {
      throw UsageError("parameter \"" + places.names[0] + "\" and parameter \"" + places.names[i] +
                       "\" are one tensor in two units, \"" + units[places.units[0]].name + "\" and \"" +
                       units[places.units[i]].name +
                       "\"; tie parameters inside one unit, or hold the shared one in the root");
    }
  }
  return places.units[0];
}

void check_not_sharded(const std::string& name, const at::Tensor& tensor) {
  if (tensor.numel() == 0 || tensor.storage().nbytes() > 0) return;
  throw UsageError(
      "parameter \"" + name +
      "\" holds no data: the module was sharded before; shard a module once, and build a new one to shard again");
}

void check_type(const std::string& name, const at::Tensor& tensor) {
  if (tensor.device().is_cpu() && at::isFloatingType(tensor.scalar_type()) && tensor.layout() == at::kStrided) return;
  throw UsageError("parameter \"" + name + "\" is " + c10::toString(tensor.scalar_type()) + " on " +
                   tensor.device().str() +
                   "; only dense floating-point parameters on the CPU can be sharded by this build");
}

}  // namespace

ModulePlan plan_units(torch::nn::Module& module, bool children_are_units, const ShardOptions& options) {
  ModulePlan plan;
  plan.units = find_units(module, children_are_units);
  if (children_are_units) plan.child_units = children_to_units(module, plan.units);
  mark_replicated(plan.units, options);

  std::map<c10::TensorImpl*, Places> places;
  std::vector<std::pair<std::string, at::Tensor>> first_names;
  for (const auto& parameter : module.named_parameters()) {
    if (!parameter.value().defined()) continue;
    check_type(parameter.key(), parameter.value());
    check_not_sharded(parameter.key(), parameter.value());
    Places& at = places[parameter.value().unsafeGetTensorImpl()];
    if (at.names.empty()) first_names.emplace_back(parameter.key(), parameter.value());
    at.names.push_back(parameter.key());
    at.units.push_back(unit_of(parameter.key(), plan.units));
  }
  if (first_names.empty()) throw UsageError("the module has no parameters: there is nothing to shard");

  for (const auto& [name, tensor] : first_names) {
    const Places& at = places[tensor.unsafeGetTensorImpl()];
    const size_t unit = owner(at, plan.units);
    plan.units[unit].parameters.push_back(plan.parameters.size());
    if (tensor.requires_grad()) plan.trainable.push_back(plan.parameters.size());
    plan.parameters.push_back({name,
                               {at.names.begin() + 1, at.names.end()},
                               tensor,
                               tensor.sizes().vec(),
                               tensor.requires_grad(),
                               unit,
                               plan.units[unit].replicated});
  }
  return plan;
}

}  // namespace mantissa
