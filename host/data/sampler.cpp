#include "data/sampler.h"

#include <string>

#include "base/error.h"

namespace mantissa {

uint64_t splitmix64(uint64_t x) {
  uint64_t z = x + 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

Sampler::Sampler(const SamplerSettings& settings) : settings_(settings) {
  if (settings.length > settings.context) return;
  throw UsageError("the training part of the text has " + std::to_string(settings.length) +
                   " bytes; need more than model.context = " + std::to_string(settings.context) +
                   ": give a longer text, a smaller context or a smaller data.heldout");
}

int64_t Sampler::row_start(int64_t step, int64_t microbatch, int64_t position) const {
  const int64_t row = (step * settings_.microbatches + microbatch) * settings_.batch + position;
  const uint64_t drawn = splitmix64(splitmix64(settings_.seed) + static_cast<uint64_t>(row));
  return static_cast<int64_t>(drawn % static_cast<uint64_t>(settings_.length - settings_.context));
}

std::vector<int64_t> Sampler::rows_of(int64_t step, int64_t microbatch, Share share) const {
  if (settings_.batch < share.world_size) {
    throw UsageError("train.batch = " + std::to_string(settings_.batch) + " rows for " +
                     std::to_string(share.world_size) +
                     " ranks; need at least one row a rank: raise train.batch or use fewer ranks");
  }
  const int64_t begin = share.rank * settings_.batch / share.world_size;
  const int64_t end = (share.rank + 1) * settings_.batch / share.world_size;
  std::vector<int64_t> starts;
  for (int64_t position = begin; position < end; ++position) starts.push_back(row_start(step, microbatch, position));
  return starts;
}

}  // namespace mantissa
