// The held-out text cut into windows for an evaluation. No torch.
//
// Window k has the inputs [k * context, (k + 1) * context) and the bytes one later as targets: inputs do not overlap,
// and every byte but the first is a target exactly once, whatever the ranks. The last window may be short: it is filled
// up with zeros whose targets are ignored (a causal model does not see them before the targets that count).
#pragma once
#include <cstdint>
#include <span>

#include "data/batch.h"

namespace mantissa {

int64_t num_windows(std::span<const uint8_t> text, int64_t context);

struct WindowRange {
  int64_t first = 0, count = 0;
};

/// Always `count` rows: those beyond the last window have ignored targets only.
Batch windows_from(std::span<const uint8_t> text, int64_t context, WindowRange range);

}  // namespace mantissa
