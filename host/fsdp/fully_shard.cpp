// The non-template half of mantissa/fully_shard.h.
#include "mantissa/fully_shard.h"

#include <torch/nn/module.h>

#include "base/error.h"
#include "fsdp/root.h"

namespace mantissa {

namespace detail {

std::shared_ptr<Root> shard_module(const std::shared_ptr<torch::nn::Module>& module, bool children_are_units,
                                   const World& world, const ShardOptions& options) {
  return Root::shard(module, plan_units(*module, children_are_units, options), world, options);
}

std::shared_ptr<UnitState> root_unit(Root& root) { return root.unit(0); }

std::shared_ptr<UnitState> child_unit(Root& root, size_t child) {
  const size_t unit = root.plan().child_units.at(child);
  return unit == 0 ? nullptr : root.unit(unit);
}

}  // namespace detail

std::vector<at::Tensor> shards(const Root& root) {
  std::vector<at::Tensor> result;
  for (const FlatParameter* flat : root.trainable()) result.push_back(flat->shard());
  return result;
}

Stats stats(const Root& root) { return root.stats(); }
void reset_peak(Root& root) { root.reset_peak(); }

void set_last_microbatch(Root& root, bool last) { root.set_last_microbatch(last); }

namespace {

std::vector<FlatParameter*> all_flat_parameters(Root& root) {
  std::vector<FlatParameter*> all;
  for (size_t i = 0; i < root.plan().units.size(); ++i) {
    for (const auto& flat : root.unit(i)->flat_parameters()) all.push_back(flat.get());
  }
  return all;
}

void refuse_changes(const Root& root, const std::vector<int64_t>& versions) {
  for (size_t i = 0; i < versions.size(); ++i) {
    const ParameterEntry& parameter = root.plan().parameters[i];
    if (parameter.tensor._version() == versions[i]) continue;
    throw UsageError(std::string("parameter \"") + parameter.name +
                     "\" was changed inside with_full_parameters without write_back; pass write_back = true to keep "
                     "what is written");
  }
}

}  // namespace

void with_full_parameters(Root& root, const std::function<void()>& body, bool write_back) {
  root.check_usable();
  const std::vector<FlatParameter*> flats = all_flat_parameters(root);
  std::vector<at::Tensor> before(flats.size());
  for (size_t i = 0; i < flats.size() && write_back; ++i) {
    if (flats[i]->narrowed()) before[i] = flats[i]->full_copy();
  }
  std::vector<int64_t> versions;
  for (const ParameterEntry& parameter : root.plan().parameters) versions.push_back(parameter.tensor._version());
  struct Reshard {
    Root& root;
    ~Reshard() {
      for (size_t i = 0; i < root.plan().units.size(); ++i) root.unit(i)->reshard();
    }
  } reshard{root};
  for (size_t i = 0; i < root.plan().units.size(); ++i) root.unit(i)->unshard();
  body();
  if (!write_back) return refuse_changes(root, versions);
  for (size_t i = 0; i < flats.size(); ++i) flats[i]->set_full(flats[i]->masters_of(before[i]));
}

}  // namespace mantissa
