// The loss on held-out rows.
#pragma once
#include <cstdint>

#include "data/dataset.h"
#include "train/forward.h"

namespace mantissa {

/// [all ranks] Nats per target, the mean over all held-out rows of `data`; every rank makes the same number of forwards
/// of `rows_per_rank` rows, as each is a collective. At least one row is held out.
double evaluate(const Forward& forward, const Dataset& data, int64_t rows_per_rank);

}  // namespace mantissa
