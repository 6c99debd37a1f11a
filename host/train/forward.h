// One forward of the whole model through its root.
#pragma once
#include "fsdp/root.h"
#include "model/model.h"

namespace mantissa {

/// [all ranks] inputs of a batch -> logits.
inline at::Tensor forward(Root& root, Model& model, const at::Tensor& inputs) {
  return detail::run_unit(root.unit(0), [&](const at::Tensor& x) { return model.logits(x); }, inputs);
}

}  // namespace mantissa
