// mantissa/fully_shard.h - sharded (FSDP) and replicated (DDP) training of your own LibTorch modules.
//
//   auto model = mantissa::fully_shard(MyModel(...), world);
//   torch::optim::AdamW optimizer(model.shards(), ...);
//   loss_of(model(input)).backward();                     // gradients arrive reduced: the mean over ranks
//   mantissa::clip_grad_norm_(model.root(), 1.0);
//   optimizer.step(); optimizer.zero_grad();
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mantissa/unit.h"
#include "mantissa/world.h"

namespace torch::nn {
class Module;
}

namespace mantissa {

class Root;

enum class Sharding {
  full,  ///< FSDP: each rank holds one piece of every parameter
  none,  ///< DDP: every rank holds all, gradients are averaged
};

struct ShardOptions {
  Sharding sharding = Sharding::full;
  // Number formats: kDouble, kFloat, kBFloat16 or kHalf.
  at::ScalarType storage_dtype = at::ScalarType::Undefined;  ///< shards, reduced gradients; Undefined: the parameters'
                                                             ///< own. In 16 bits small updates are lost
  at::ScalarType param_dtype = at::ScalarType::Undefined;    ///< gather and compute; Undefined: as storage_dtype
  at::ScalarType reduce_dtype = at::ScalarType::Undefined;   ///< gradients on the wire; Undefined: as storage_dtype
  at::ScalarType buffer_dtype = at::ScalarType::Undefined;   ///< floating-point buffers; Undefined: left as they are
  bool reshard_after_forward = true;                         ///< false: a unit stays gathered until its backward
  bool reduce_every_microbatch = true;                       ///< false: only at the last one; costs a full gradient
  std::vector<std::string> replicate;                        ///< names of units that stay whole on every rank
};

/// What is unsharded now, and was at most. Replicated units do not count.
struct Stats {
  size_t gathered_bytes = 0, peak_gathered_bytes = 0;
  int num_units = 0, gathered_units = 0, peak_units = 0;  ///< the root is a unit
};

namespace detail {
/// Shards `module` in place; `children_are_units`: the children of a plain Sequential.
std::shared_ptr<Root> shard_module(const std::shared_ptr<torch::nn::Module>& module, bool children_are_units,
                                   const World& world, const ShardOptions& options);
std::shared_ptr<UnitState> root_unit(Root& root);
/// Of the n-th child of a plain Sequential; null for one without parameters.
std::shared_ptr<UnitState> child_unit(Root& root, size_t child);

template <class Module>
concept sequence = requires(Module& module) { (*module.begin()).template forward<at::Tensor>(at::Tensor()); };
}  // namespace detail

/// A root module and its units; a copyable handle. Call it like the holder; every rank makes the same calls in the same
/// order.
template <class Holder>
class Sharded {
 public:
  Sharded(Holder module, const World& world, const ShardOptions& options)
      : module_(std::move(module)), root_(detail::shard_module(module_.ptr(), kIsSequence, world, options)) {}

  /// Forward. Then loss.backward() as usual.
  template <class... Args>
  auto operator()(Args&&... args) {
    return detail::run_unit(detail::root_unit(*root_), [this](auto&... x) { return forward(x...); }, args...);
  }

  /// The module. Its parameters hold data only inside forward, backward and with_full_parameters.
  Holder& module() { return module_; }
  Root& root() { return *root_; }
  /// This rank's trainable pieces: flat leaves with grad(). Give them to any element-wise torch::optim optimizer.
  std::vector<at::Tensor> shards() const;

 private:
  static constexpr bool kIsSequence = detail::sequence<typename Holder::ContainedType>;

  template <class... Args>
  auto forward(Args&... args) {
    if constexpr (kIsSequence) {
      at::Tensor x(args...);
      size_t child = 0;
      for (auto& module : *module_) {
        x = detail::run_unit(
            detail::child_unit(*root_, child++), [&](at::Tensor& y) { return module.template forward<at::Tensor>(y); },
            x);
      }
      return x;
    } else {
      return module_->forward(args...);
    }
  }

  Holder module_;
  std::shared_ptr<Root> root_;
};

/// Shards in place. Units: every Unit<> below `module`, and the children of a plain nn::Sequential; all other
/// parameters belong to the root. [all ranks] Parameters and buffers become rank 0's. Throws UsageError for what cannot
/// be sharded.
template <class Holder>
Sharded<Holder> fully_shard(Holder module, const World& world, const ShardOptions& options = {}) {
  return Sharded<Holder>(std::move(module), world, options);
}

std::vector<at::Tensor> shards(const Root& root);
Stats stats(const Root& root);
void reset_peak(Root& root);

/// For reduce_every_microbatch = false: says before a backward pass whether it is the last of its step. Only then are
/// the gradients reduced.
void set_last_microbatch(Root& root, bool last);

/// [all ranks] Runs `body` with every parameter whole and readable; with `write_back` what it changed is kept, rank 0's
/// word; without, a changed parameter is a UsageError.
void with_full_parameters(Root& root, const std::function<void()>& body, bool write_back = false);

template <class Holder>
std::vector<at::Tensor> Sharded<Holder>::shards() const {
  return mantissa::shards(*root_);
}

}  // namespace mantissa
