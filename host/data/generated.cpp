#include "data/generated.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "data/splitmix64.h"

namespace mantissa {
namespace {

constexpr float kUnitVariance = 0x1.bb67aep-16F;  // sqrt(3) / 65536
constexpr uint64_t kFirstHeldout = uint64_t{1} << 63;

int32_t sum_of_parts(uint64_t x) {
  constexpr uint64_t kPart = 0xFFFF;
  return static_cast<int32_t>((x & kPart) + (x >> 16 & kPart) + (x >> 32 & kPart) + (x >> 48)) - 131070;
}

}  // namespace

GeneratedData::GeneratedData(const GeneratedSettings& settings) : settings_(settings) {
  for (int64_t c = 0; c < settings_.classes; ++c) teacher_.push_back(draws(~static_cast<uint64_t>(c)));
}

std::vector<int32_t> GeneratedData::draws(uint64_t row) const {
  const uint64_t key = splitmix64(splitmix64(settings_.seed) + row);
  std::vector<int32_t> draws(static_cast<size_t>(settings_.inputs));
  for (size_t j = 0; j < draws.size(); ++j) draws[j] = sum_of_parts(splitmix64(key + j));
  return draws;
}

// A product is below 2^34 and there are at most 10,000 of them.
int64_t GeneratedData::label(const std::vector<int32_t>& draws) const {
  int64_t best = 0, best_score = 0;
  for (size_t c = 0; c < teacher_.size(); ++c) {
    const int64_t score = std::transform_reduce(draws.begin(), draws.end(), teacher_[c].begin(), int64_t{0},
                                                std::plus<>(), [](int64_t a, int64_t b) { return a * b; });
    if (c != 0 && score <= best_score) continue;
    best = static_cast<int64_t>(c);
    best_score = score;
  }
  return best;
}

void GeneratedData::append_row(uint64_t row, Batch& batch) const {
  const std::vector<int32_t> drawn = draws(row);
  for (const int32_t draw : drawn) batch.features.push_back(static_cast<float>(draw) * kUnitVariance);
  batch.targets.push_back(label(drawn));
  ++batch.rows;
  ++batch.num_targets;
}

Batch GeneratedData::rows(std::span<const uint64_t> indices) const {
  Batch batch;
  batch.features.reserve(indices.size() * static_cast<size_t>(settings_.inputs));
  for (const uint64_t index : indices) append_row(index, batch);
  return batch;
}

Batch GeneratedData::heldout_rows(int64_t first, int64_t count) const {
  Batch batch;
  for (int64_t row = first; row < std::min(first + count, settings_.heldout_rows); ++row) {
    append_row(kFirstHeldout + static_cast<uint64_t>(row), batch);
  }
  batch.rows = count;
  batch.features.resize(static_cast<size_t>(count * settings_.inputs), 0);
  batch.targets.resize(static_cast<size_t>(count), kIgnoredTarget);
  return batch;
}

std::string GeneratedData::describe() const {
  return "generated, " + std::to_string(settings_.inputs) + " inputs, " + std::to_string(settings_.classes) +
         " classes, " + std::to_string(settings_.heldout_rows) + " rows held out";
}

}  // namespace mantissa
