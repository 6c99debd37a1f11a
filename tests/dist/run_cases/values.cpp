#include "values.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>

namespace mantissa::cases {

double real(const json& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.get<std::string>();
  if (text == "nan") return std::nan("");
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("not a number: " + text);
}

std::vector<double> values_of(const json& values) {
  std::vector<double> result;
  const auto fill = [&](const json& segment) {
    result.insert(result.end(), segment.at("numel").get<size_t>(), real(segment.at("fill")));
  };
  if (values.is_array()) {
    for (const json& value : values) result.push_back(real(value));
  } else if (values.contains("segments")) {
    for (const json& segment : values.at("segments")) fill(segment);
  } else {
    fill(values);
  }
  return result;
}

at::Tensor tensor_of(const json& values, at::ScalarType dtype) {
  const std::vector<double> list = values_of(values);
  at::Tensor tensor = at::empty({static_cast<int64_t>(list.size())}, at::kDouble);
  std::copy(list.begin(), list.end(), tensor.data_ptr<double>());
  return tensor.to(dtype);
}

at::ScalarType dtype_of(const json& name) {
  const auto text = name.get<std::string>();
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    if (name_of(dtype) == text) return dtype;
  }
  throw std::runtime_error("unknown dtype: " + text);
}

std::string name_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return "float64";
    case at::kFloat: return "float32";
    case at::kBFloat16: return "bfloat16";
    case at::kHalf: return "float16";
    default: return c10::toString(dtype);
  }
}

bool near(double got, double want, double rtol) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  return got == want || std::fabs(got - want) <= rtol * std::fabs(want);
}

std::string text(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  return buffer;
}

std::string difference(const std::string& what, double got, double want, double rtol) {
  return near(got, want, rtol) ? "" : what + " got " + text(got) + ", want " + text(want);
}

}  // namespace mantissa::cases
