// The non-template half of mantissa/fully_shard.h.
#include "mantissa/fully_shard.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include "base/error.h"
#include "fsdp/root.h"

namespace mantissa {

namespace detail {

std::shared_ptr<Root> shard_module(const std::shared_ptr<torch::nn::Module>& module, bool children_are_units, const World& world,
                                   const ShardOptions& options) {
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

void with_full_parameters(Root& root, const std::function<void()>& body, bool write_back) {
  root.check_usable();
  const auto each_unit = [&](auto f) {
    for (size_t i = 0; i < root.plan().units.size(); ++i) f(*root.unit(i));
  };
  struct Reshard {
    decltype(each_unit)& each;
    ~Reshard() {
      each([](UnitState& unit) { unit.reshard(); });
    }
  } reshard{each_unit};
  each_unit([](UnitState& unit) { unit.unshard(); });
  body();
  if (!write_back) return;
  const at::NoGradGuard no_grad;
  each_unit([](UnitState& unit) {
    for (const auto& flat : unit.flat_parameters()) flat->set_full(flat->copy_in_members());
  });
}

}  // namespace mantissa
