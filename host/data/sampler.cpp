#include "data/sampler.h"

#include <string>

#include "base/error.h"

namespace mantissa {

uint64_t Sampler::row(int64_t step, int64_t microbatch, int64_t position) const {
  const int64_t row = (step * settings_.microbatches + microbatch) * settings_.batch + position;
  return splitmix64(splitmix64(settings_.seed) + static_cast<uint64_t>(row)) % settings_.num_rows;
}

std::vector<uint64_t> Sampler::rows_of(int64_t step, int64_t microbatch, Share share) const {
  if (settings_.batch < share.world_size) {
    throw UsageError("train.batch = " + std::to_string(settings_.batch) + " rows for " +
                     std::to_string(share.world_size) +
                     " ranks; need at least one row a rank: raise train.batch or use fewer ranks");
  }
  const int64_t begin = share.rank * settings_.batch / share.world_size;
  const int64_t end = (share.rank + 1) * settings_.batch / share.world_size;
  std::vector<uint64_t> rows;
  for (int64_t position = begin; position < end; ++position) rows.push_back(row(step, microbatch, position));
  return rows;
}

}  // namespace mantissa
