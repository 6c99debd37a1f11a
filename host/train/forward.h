// One forward of the whole model through its root, in the number formats that the plugin asked for.
#pragma once
#include <ATen/core/Tensor.h>

#include "fsdp/root.h"
#include "model/model.h"
#include "plugin/precision.h"

namespace mantissa {

class Forward {
 public:
  Forward(Root& root, Model& model, const NumberFormats& formats) : root_(root), model_(model), formats_(formats) {}

  /// [all ranks] inputs of a batch -> logits. Floating-point inputs are cast to input_dtype; the model runs under
  /// autocast if the plan asks for it.
  at::Tensor operator()(const at::Tensor& inputs) const;

  Root& root() const { return root_; }

 private:
  Root& root_;
  Model& model_;
  const NumberFormats& formats_;
};

}  // namespace mantissa
