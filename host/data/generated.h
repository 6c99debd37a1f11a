// A data set that needs no file: features from a hash of their place, labels from a fixed teacher. No torch.
//
// Every number is an integer until the last, so that the rows are the same bits on every machine, and a program in
// another language makes them too. With all sums modulo 2^64:
//   row(i)        = splitmix64(splitmix64(seed) + i)                       i is a whole number below 2^64
//   draw(i, j)    = the sum of the four 16-bit parts of splitmix64(row(i) + j), minus 131070
//   feature(i, j) = draw(i, j) * 0x1.bb67aep-16 in float32                 (sqrt(3) / 65536: mean 0, variance 1)
//   score(i, c)   = the sum over j of draw(i, j) * draw(2^64 - 1 - c, j)   the teacher's row of class c
//   label(i)      = the c with the largest score, the first of equal ones
// A sum of four is close to a normal distribution. Rows to train on are i in [0, 2^63), held-out row k is 2^63 + k.
#pragma once
#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace mantissa {

struct GeneratedSettings {
  uint64_t seed = 0;
  int64_t inputs = 1;        ///< features of a row, 1 to 10,000
  int64_t classes = 2;       ///< 1 to 1,000
  int64_t heldout_rows = 0;  ///< >= 0
};

class GeneratedData final : public Dataset {
 public:
  explicit GeneratedData(const GeneratedSettings& settings);

  uint64_t num_rows() const override { return uint64_t{1} << 63; }
  Batch rows(std::span<const uint64_t> indices) const override;
  int64_t targets_per_row() const override { return 1; }
  int64_t num_heldout_rows() const override { return settings_.heldout_rows; }
  Batch heldout_rows(int64_t first, int64_t count) const override;
  bool is_text() const override { return false; }
  uint64_t file_size() const override { return 0; }
  std::string describe() const override;

 private:
  std::vector<int32_t> draws(uint64_t row) const;
  int64_t label(const std::vector<int32_t>& draws) const;
  void append_row(uint64_t row, Batch& batch) const;

  GeneratedSettings settings_;
  std::vector<std::vector<int32_t>> teacher_;  // a row a class
};

}  // namespace mantissa
