// A model that the trainer can train, and the models that come with the program.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "config/config.h"

namespace torch::nn {
class Module;
}

namespace mantissa {

/// What maps a batch to logits: a language model over bytes, or a classifier of rows.
class Model {
 public:
  virtual ~Model() = default;

  /// What is sharded; its blocks are units.
  virtual std::shared_ptr<torch::nn::Module> module() = 0;
  /// A language model: [rows, context] of int64, bytes 0 to 255 -> [rows, context, 256].
  /// A classifier: [rows, inputs] of float32 -> [rows, classes].
  virtual at::Tensor logits(const at::Tensor& inputs) = 0;
  /// One line for people, e.g. "gpt, 4 layers, width 256, 4 heads, context 128".
  virtual std::string describe() const = 0;
};

/// Builds config.kind for `data`, with weights drawn from `seed`: the same on every rank. Throws UsageError for an
/// unknown kind.
std::unique_ptr<Model> make_model(const ModelConfig& config, const DataConfig& data, uint64_t seed);

/// Sum over all targets of the cross entropy in nats, computed in float32 or wider; ignored targets count as 0.
/// logits: [..., classes], targets: as many of int64.
at::Tensor loss_sum(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace mantissa
