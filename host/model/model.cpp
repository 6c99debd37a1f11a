#include "model/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "base/error.h"
#include "model/gpt.h"
#include "model/mlp.h"

namespace mantissa {

std::unique_ptr<Model> make_model(const ModelConfig& config, const DataConfig& data, uint64_t seed) {
  at::manual_seed(seed);
  if (config.kind == "gpt") return make_gpt(config);
  if (config.kind == "mlp") return make_mlp(config, data);
  throw UsageError("model.kind is \"" + config.kind + "\", need \"gpt\" or \"mlp\"");
}

at::Tensor loss_sum(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  return at::cross_entropy_loss(wide.reshape({-1, wide.size(-1)}), targets.reshape({-1}), {}, at::Reduction::Sum);
}

}  // namespace mantissa
