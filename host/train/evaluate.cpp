#include "train/evaluate.h"

#include <ATen/core/grad_mode.h>

#include "data/windows.h"
#include "train/forward.h"
#include "train/tensors.h"

namespace mantissa {

double evaluate(Root& root, Model& model, std::span<const uint8_t> text, int64_t context, int64_t rows_per_rank) {
  const at::NoGradGuard no_grad;
  const EvaluationWindows windows(text, context, rows_per_rank);
  const int world_size = root.transport().world_size();
  Packet packet;
  for (int64_t i = 0; i < windows.num_forwards(world_size); ++i) {
    Batch batch = windows.batch(i, {root.transport().rank(), world_size});
    const BatchTensors tensors = tensors_of(batch);
    packet.loss_sum += loss_sum(forward(root, model, tensors.inputs), tensors.targets).item<double>();
    packet.loss_weight += static_cast<double>(batch.num_targets);
  }
  const Agreed agreed = root.exchange().agree(Operation::evaluate, packet);
  return agreed.loss_sum / agreed.loss_weight;
}

}  // namespace mantissa
