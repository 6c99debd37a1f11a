#include "train/tensors.h"

#include <ATen/ops/from_blob.h>

namespace mantissa {

BatchTensors tensors_of(Batch& batch) {
  const auto view = [&](std::vector<int64_t>& values) {
    return at::from_blob(values.data(), {batch.rows, batch.context}, at::kLong);
  };
  return {view(batch.inputs), view(batch.targets)};
}

}  // namespace mantissa
