#include "train/tensors.h"

#include <ATen/ops/from_blob.h>

namespace mantissa {
namespace {

template <class T>
at::Tensor by_row(std::vector<T>& values, int64_t rows) {
  return at::from_blob(values.data(), {rows, static_cast<int64_t>(values.size()) / rows},
                       c10::CppTypeToScalarType<T>::value);
}

}  // namespace

BatchTensors tensors_of(Batch& batch) {
  const bool has_features = !batch.features.empty();
  return {has_features ? by_row(batch.features, batch.rows) : by_row(batch.inputs, batch.rows),
          by_row(batch.targets, batch.rows)};
}

}  // namespace mantissa
