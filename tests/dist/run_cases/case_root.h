// The sharded root of a case, built from its list of parameters, and real backward passes through it.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/root.h"
#include "values.h"

namespace mantissa::cases {

/// `params` and one more in the root, whose gradient is always zero.
json with_anchor(json params);

/// The same tensors, the same bits; undefined ones count.
bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

/// One unit for each number, one replicated unit for replicated parameters, the rest in the root. Values are `init`, or
/// zeros.
class CaseRoot {
 public:
  CaseRoot(const json& params, const World& world, const ShardOptions& options = {});

  Root& root() { return *root_; }
  /// What sharding and plugins see before the root is sharded.
  static ModulePlan plan_of(const json& params);

  /// Sets this rank's reduced gradient, as if a backward pass had ended.
  void set_gradient(const json& param);

  /// A forward and a backward pass of `factor` * sum(parameter * gradient): `gradients` is this rank's, by name; null
  /// is a parameter that this rank does not use. The root must be made with_anchor.
  void backward(const json& gradients, double factor);

  /// Where what this rank holds of `param` differs from the whole wanted values; "" if nowhere.
  std::string compare_gradient(const std::string& name, const std::vector<double>& want, double rtol);
  std::string compare_value(const std::string& name, const std::vector<double>& want, double rtol);

  /// The gradients that this rank holds, as they lie in memory.
  std::vector<at::Tensor> gradients() const;
  /// Copies of the parameters that this rank holds.
  std::vector<at::Tensor> values() const;
  const ParameterEntry& parameter(const std::string& name) const;

 private:
  at::Tensor used(size_t unit, const json& gradients) const;

  std::shared_ptr<Root> root_;
};

}  // namespace mantissa::cases
