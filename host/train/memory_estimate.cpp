#include "train/memory_estimate.h"

#include <algorithm>

namespace mantissa {
namespace {

int64_t sum_of(const std::vector<UnitSize>& units, bool trainable_only) {
  int64_t sum = 0;
  for (const UnitSize& unit : units) {
    if (unit.trainable || !trainable_only) sum += unit.elements;
  }
  return sum;
}

int64_t largest_of(const std::vector<UnitSize>& units) {
  int64_t largest = 0;
  for (const UnitSize& unit : units) largest = std::max(largest, unit.elements);
  return largest;
}

}  // namespace

MemoryEstimate estimate_memory(const MemoryQuestion& question) {
  const int64_t all = sum_of(question.units, false), trained = sum_of(question.units, true);
  const int64_t parts = question.sharded ? question.world_size : 1;
  const int64_t root = question.units.empty() ? 0 : question.units.front().elements;
  const int64_t largest = largest_of(question.units);

  MemoryEstimate memory;
  memory.program = question.program_bytes;
  memory.parameters = all / parts * question.storage_bytes;
  memory.gradients = trained / parts * question.storage_bytes;
  memory.optimizer = trained / parts * question.storage_bytes * question.optimizer_buffers;
  // Where a rank holds all in the type it computes with, nothing is gathered: the shard is the parameter.
  const bool in_place = parts == 1 && question.param_bytes == question.storage_bytes;
  if (!in_place) {
    const int64_t elements =
        question.sharded && question.reshard_after_forward ? root + std::min(2 * largest, all) : all;
    memory.gathered = std::min(elements, all) * question.param_bytes;
  }
  // A unit's gradient, what the other ranks send of theirs, and the sum over micro-batches where it is not reduced yet.
  const int64_t received = question.world_size > 1 ? largest : 0;
  memory.in_flight = (largest + received) * question.reduce_bytes;
  if (question.accumulates_unreduced) memory.in_flight += trained * question.storage_bytes;
  // The first gradients are in flight when the last unit's activations are gone.
  const auto num_units = static_cast<int64_t>(question.units.size());
  memory.activations =
      num_units > 1 ? question.activation_bytes * (num_units - 1) / num_units : question.activation_bytes;
  memory.at_start = memory.program + (all + largest) * question.storage_bytes;
  return memory;
}

}  // namespace mantissa
