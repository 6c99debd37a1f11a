#include "case_root.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/module.h>

#include <cstring>
#include <stdexcept>

#include "mantissa/unit.h"

namespace mantissa::cases {
namespace {

// Its gradient is zero, so it counts in no norm; a rank that uses none of the case's parameters still has a backward.
constexpr const char* kAnchor = "anchor of the case";

void add_parameter(ModulePlan& plan, const std::string& name, const at::Tensor& tensor, size_t unit) {
  const bool trainable = tensor.requires_grad();
  plan.units[unit].parameters.push_back(plan.parameters.size());
  if (trainable) plan.trainable.push_back(plan.parameters.size());
  plan.parameters.push_back({name, {}, tensor, tensor.sizes().vec(), trainable, unit, plan.units[unit].replicated});
}

at::Tensor initial_value(const json& p) {
  const auto shape = p.at("shape").get<std::vector<int64_t>>();
  const at::ScalarType dtype = dtype_of(p.at("dtype"));
  if (!p.contains("init")) return at::zeros(shape, dtype);
  return tensor_of(p.at("init"), dtype).view(shape);
}

// The first difference of this rank's pieces of `name` from `want`.
template <class ValuesOf>
std::string compare(Root& root, const std::string& name, ValuesOf values_of, const std::vector<double>& want,
                    double rtol) {
  const ModulePlan& plan = root.plan();
  for (size_t i = 0; i < plan.trainable.size(); ++i) {
    if (plan.parameters[plan.trainable[i]].name != name) continue;
    const TrainablePiece& piece = root.trainable_pieces()[i];
    const at::Tensor values = values_of(*piece.flat);
    for (int64_t k = 0; k < piece.numel; ++k) {
      const double got = values.defined() ? values[piece.shard_offset + k].template item<double>() : 0;
      const std::string what = name + "[" + std::to_string(piece.parameter_offset + k) + "]";
      const std::string found = difference(what, got, want.at(static_cast<size_t>(piece.parameter_offset + k)), rtol);
      if (!found.empty()) return found;
    }
  }
  return "";
}

}  // namespace

json with_anchor(json params) {
  params.push_back({{"name", kAnchor}, {"shape", {1}}, {"dtype", "float32"}, {"placement", "sharded"}});
  return params;
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined()) return false;
    if (a[i].defined() && std::memcmp(a[i].const_data_ptr(), b[i].const_data_ptr(), a[i].nbytes()) != 0) return false;
  }
  return true;
}

ModulePlan CaseRoot::plan_of(const json& params) {
  ModulePlan plan;
  plan.units.push_back({"", nullptr, false, {}});
  std::map<std::pair<int, bool>, size_t> units{{{-1, false}, 0}};
  for (const json& p : params) {
    if (p.at("placement") == "tied") continue;
    const bool replicated = p.at("placement") == "replicated";
    const auto [unit, added] = units.emplace(std::pair{p.value("unit", -1), replicated}, plan.units.size());
    if (added) plan.units.push_back({"unit" + std::to_string(plan.units.size()), nullptr, replicated, {}});
    add_parameter(plan, p.at("name"), initial_value(p).set_requires_grad(p.at("placement") != "frozen"), unit->second);
  }
  return plan;
}

CaseRoot::CaseRoot(const json& params, const World& world, const ShardOptions& options)
    : root_(Root::shard(std::make_shared<torch::nn::Module>("case"), plan_of(params), world, options)) {}

const ParameterEntry& CaseRoot::parameter(const std::string& name) const {
  for (const ParameterEntry& entry : root_->plan().parameters) {
    if (entry.name == name) return entry;
  }
  throw std::runtime_error("no parameter " + name);
}

void CaseRoot::set_gradient(const json& p) {
  if (p.at("grad").is_null()) return;
  const std::string name = p.at("name");
  const at::Tensor whole = tensor_of(p.at("grad"), dtype_of(p.at("dtype")));
  if (p.at("placement") == "frozen") {
    at::Tensor(parameter(name).tensor).mutable_grad() = whole.view(parameter(name).tensor.sizes());
    return;
  }
  const ModulePlan& plan = root_->plan();
  for (size_t i = 0; i < plan.trainable.size(); ++i) {
    if (plan.parameters[plan.trainable[i]].name != name) continue;
    const TrainablePiece& piece = root_->trainable_pieces()[i];
    at::Tensor shard = piece.flat->shard();
    if (!shard.grad().defined()) shard.mutable_grad() = at::zeros_like(shard.detach());
    shard.grad().narrow(0, piece.shard_offset, piece.numel).copy_(whole.narrow(0, piece.parameter_offset, piece.numel));
  }
}

// sum(parameter * gradient) of the parameters of one unit that this rank uses; undefined if none.
at::Tensor CaseRoot::used(size_t unit, const json& gradients) const {
  at::Tensor sum;
  for (const size_t index : root_->plan().units[unit].parameters) {
    const ParameterEntry& entry = root_->plan().parameters[index];
    if (!entry.trainable) continue;
    at::Tensor term;
    if (entry.name == kAnchor) {
      term = at::mul(entry.tensor, 0).sum();
    } else if (gradients.contains(entry.name) && !gradients.at(entry.name).is_null()) {
      const at::Tensor gradient = tensor_of(gradients.at(entry.name), entry.tensor.scalar_type());
      term = at::mul(entry.tensor, gradient.view(entry.tensor.sizes())).sum();
    }
    if (term.defined()) sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

void CaseRoot::backward(const json& gradients, double factor) {
  const auto body = [&](const at::Tensor& x) {
    at::Tensor y = x;
    for (size_t unit = 1; unit < root_->plan().units.size(); ++unit) {
      y = detail::run_unit(
          root_->unit(unit),
          [&](const at::Tensor& z) {
            const at::Tensor term = used(unit, gradients);
            return term.defined() ? z + term.to(z.scalar_type()) : z;
          },
          y);
    }
    return y + used(0, gradients).to(y.scalar_type());
  };
  const at::Tensor start = at::zeros({}, at::kDouble);
  const at::Tensor loss = detail::run_unit(root_->unit(0), body, start);
  (loss.to(at::kFloat) * factor).backward();
}

std::string CaseRoot::compare_gradient(const std::string& name, const std::vector<double>& want, double rtol) {
  return compare(*root_, name, [](const FlatParameter& flat) { return flat.shard().grad(); }, want, rtol);
}

std::string CaseRoot::compare_value(const std::string& name, const std::vector<double>& want, double rtol) {
  return compare(*root_, name, [](const FlatParameter& flat) { return flat.shard().detach(); }, want, rtol);
}

std::vector<at::Tensor> CaseRoot::values() const {
  std::vector<at::Tensor> copies;
  for (const FlatParameter* flat : root_->trainable()) copies.push_back(flat->shard().detach().clone());
  return copies;
}

std::vector<at::Tensor> CaseRoot::gradients() const {
  std::vector<at::Tensor> copies;
  for (const FlatParameter* flat : root_->trainable())
    copies.push_back(flat->shard().grad().defined() ? flat->shard().grad().clone() : at::Tensor());
  return copies;
}

}  // namespace mantissa::cases
