// Text from the trained model, so that a person sees what it learned.
#pragma once
#include <string>

#include "config/config.h"
#include "train/forward.h"

namespace mantissa {

/// [all ranks] Continues the prompt by sample.length bytes, one forward a byte over at most `context` bytes. Every rank
/// computes the same text; rank 0's counts. Returns the prompt and what follows; not always valid UTF-8.
std::string generate_text(const Forward& forward, const SampleConfig& sample, int64_t context);

}  // namespace mantissa
