// Reading the numbers of a case file, and comparing with them.
#pragma once
#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace mantissa::cases {

using nlohmann::json;

/// A number; "nan", "inf" and "-inf" stand for themselves.
double real(const json& value);
/// A flat list, {"fill", "numel"} or {"segments": [...]}.
std::vector<double> values_of(const json& values);
/// values_of as [numel] of `dtype`; each is a value of it.
at::Tensor tensor_of(const json& values, at::ScalarType dtype);
/// "float64", "float32", "bfloat16" or "float16".
at::ScalarType dtype_of(const json& name);
std::string name_of(at::ScalarType dtype);

/// |got - want| <= rtol * |want|; NaN equals NaN.
bool near(double got, double want, double rtol);
/// With all digits.
std::string text(double value);
/// "WHAT got X, want Y", or "" if they are near.
std::string difference(const std::string& what, double got, double want, double rtol);

}  // namespace mantissa::cases
