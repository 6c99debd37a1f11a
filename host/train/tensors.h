// Batches of data/ as tensors of a model.
#pragma once
#include <ATen/core/Tensor.h>

#include "data/batch.h"

namespace mantissa {

struct BatchTensors {
  at::Tensor inputs;   ///< [rows, context] of int64, or [rows, features] of float32
  at::Tensor targets;  ///< [rows, targets of a row] of int64
};

/// Views of `batch`, which must outlive them.
BatchTensors tensors_of(Batch& batch);

}  // namespace mantissa
