// Our side of safetensors_check.py. `write FILE` writes known tensors; `check FILE` compares what Python wrote with
// them.
#include <ATen/ATen.h>

#include <cstring>
#include <iostream>
#include <string>

#include "weights/safetensors.h"

namespace {

using mantissa::NamedTensor;

// Element i is (i * 7 + 3) % 50 - 20, or % 2 for bool: exact in every dtype. safetensors_check.py has the same.
at::Tensor known(at::IntArrayRef shape, at::ScalarType type) {
  const at::Tensor raw = at::arange(c10::multiply_integers(shape), at::kLong).mul(7).add(3);
  return (type == at::kBool ? raw.remainder(2) : raw.remainder(50).sub(type == at::kByte ? 0 : 20))
      .to(type)
      .reshape(shape);
}

std::vector<NamedTensor> known_tensors() {
  return {{"blocks.10.weight", known({5, 3}, at::kFloat)},
          {"blocks.2.weight", known({5, 3}, at::kFloat)},
          {"f64", known({7}, at::kDouble)},
          {"f16", known({3}, at::kHalf)},
          {"bf16", known({2, 2, 2}, at::kBFloat16)},
          {"i64", known({4}, at::kLong)},
          {"i32", known({4}, at::kInt)},
          {"i16", known({3}, at::kShort)},
          {"i8", known({3}, at::kChar)},
          {"u8", known({5}, at::kByte)},
          {"bool", known({3}, at::kBool)},
          {"scalar", known({}, at::kFloat)},
          {"empty", known({0, 4}, at::kFloat)},
          {"n\u00e4me \"quoted\"\n", known({1}, at::kFloat)}};
}

int check(const std::string& path) {
  const mantissa::SafetensorsFile file(path);
  const std::vector<NamedTensor> expected = known_tensors();
  bool same = file.entries().size() == expected.size() && file.metadata().at("format") == "pt";
  for (const NamedTensor& tensor : expected) {
    const at::Tensor read = file.tensor(tensor.name);
    const bool equal = read.scalar_type() == tensor.tensor.scalar_type() && at::equal(read, tensor.tensor);
    if (!equal) std::cerr << tensor.name << " differs\n";
    same = same && equal;
  }
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (std::strcmp(argv[1], "check") == 0) return check(argv[2]);
  mantissa::write_safetensors(argv[2], known_tensors(), {{"format", "pt"}});
  return 0;
}
