// The loss on held-out text.
#pragma once
#include <cstdint>
#include <span>

#include "fsdp/root.h"
#include "model/model.h"

namespace mantissa {

/// [all ranks] Nats per target, the mean over all of `text`; every rank makes the same number of forwards of
/// `rows_per_rank` rows.
double evaluate(Root& root, Model& model, std::span<const uint8_t> text, int64_t context, int64_t rows_per_rank);

}  // namespace mantissa
