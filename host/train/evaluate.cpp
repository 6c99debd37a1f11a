#include "train/evaluate.h"

#include <ATen/core/grad_mode.h>

#include "train/tensors.h"

namespace mantissa {

double evaluate(const Forward& forward, const Dataset& data, int64_t rows_per_rank) {
  const at::NoGradGuard no_grad;
  const Transport& transport = forward.root().transport();
  const int64_t rank = transport.rank(), rows_of_all = rows_per_rank * transport.world_size();
  Packet packet;
  for (int64_t first = 0; first < data.num_heldout_rows(); first += rows_of_all) {
    Batch batch = data.heldout_rows(first + rank * rows_per_rank, rows_per_rank);
    const BatchTensors tensors = tensors_of(batch);
    packet.loss_sum += loss_sum(forward(tensors.inputs), tensors.targets).item<double>();
    packet.loss_weight += static_cast<double>(batch.num_targets);
  }
  const Agreed agreed = forward.root().exchange().agree(Operation::evaluate, packet);
  return agreed.loss_sum / agreed.loss_weight;
}

}  // namespace mantissa
