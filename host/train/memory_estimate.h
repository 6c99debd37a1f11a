// How much memory a rank will need, from sizes alone. Plain arithmetic, so that `--dry-run` can tell before a rank is
// started. No torch.
#pragma once
#include <cstdint>
#include <vector>

namespace mantissa {

/// One flat parameter of a unit, elements with its padding.
struct UnitSize {
  int64_t elements = 0;
  bool trainable = true;
};

struct MemoryQuestion {
  std::vector<UnitSize> units;  ///< the root's parameters first
  int world_size = 1;
  bool sharded = true;  ///< false: every rank keeps all parameters
  bool reshard_after_forward = true;
  bool accumulates_unreduced = false;                            ///< full gradients are kept until the last micro-batch
  int64_t optimizer_buffers = 0;                                 ///< per trainable element, in the storage type
  int64_t storage_bytes = 4, param_bytes = 4, reduce_bytes = 4;  ///< of an element
  int64_t program_bytes = 0;                                     ///< resident without model and data
  int64_t activation_bytes = 0;  ///< that forward leaves for backward, of one rank's micro-batch
};

/// Bytes of one rank. Sums are what is there at the fullest moment, which is either when the model is built (all of it
/// is there once, before it is sharded) or in backward.
struct MemoryEstimate {
  int64_t program = 0;
  int64_t parameters = 0, gradients = 0, optimizer = 0;  ///< kept between steps
  int64_t gathered = 0;                                  ///< the root and two units, or all of them
  int64_t in_flight = 0;                                 ///< a unit's gradients before and while they are reduced
  int64_t activations = 0;
  int64_t at_start = 0;  ///< program and model, before it is sharded
  int64_t in_steps() const { return program + parameters + gradients + optimizer + gathered + in_flight + activations; }
  int64_t peak() const { return in_steps() > at_start ? in_steps() : at_start; }
};

MemoryEstimate estimate_memory(const MemoryQuestion& question);

}  // namespace mantissa
