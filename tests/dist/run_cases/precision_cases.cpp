// Number formats: of the reduction, of updates, of the copy that is computed with, and those of a mode.
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <torch/nn/modules/linear.h>

#include <stdexcept>
#include <type_traits>

#include "checks.h"
#include "mantissa/unit.h"
#include "model/model.h"
#include "plugin_at_work.h"
#include "train/forward.h"
#include "train/shard_options.h"

namespace mantissa::cases {
namespace {

json parameter_w(const json& values, at::ScalarType dtype) {
  return json::array({{{"name", "w"},
                       {"shape", {values.size()}},
                       {"dtype", name_of(dtype)},
                       {"placement", "sharded"},
                       {"init", values}}});
}

// The parameter as a unit's forward sees it.
std::vector<double> gathered(CaseRoot& built) {
  const at::NoGradGuard no_grad;
  UnitState& unit = *built.root().unit(0);
  unit.unshard();
  const at::Tensor whole = built.parameter("w").tensor.to(at::kDouble).contiguous();
  unit.reshard();
  return {whole.data_ptr<double>(), whole.data_ptr<double>() + whole.numel()};
}

std::string compare_list(const std::vector<double>& got, const std::vector<double>& want, double rtol) {
  for (size_t i = 0; i < want.size(); ++i) {
    const std::string problem = difference("values[" + std::to_string(i) + "]", got.at(i), want[i], rtol);
    if (!problem.empty()) return problem;
  }
  return "";
}

std::string check_reduce(const json& c, const World& world) {
  const json mine = c.at("grads_by_rank").at(static_cast<size_t>(world.rank()));
  const at::ScalarType stored = dtype_of(c.at("grad_dtype"));
  ShardOptions options;
  options.param_dtype = dtype_of(c.at("local_dtype"));
  options.reduce_dtype = dtype_of(c.at("reduce_dtype"));
  const json params = with_anchor(parameter_w(json::array_t(values_of(mine).size(), 0.0), stored));
  for (const Sharding sharding : {Sharding::full, Sharding::none}) {
    options.sharding = sharding;
    CaseRoot built(params, world, options);
    built.backward({{"w", mine}}, 1);
    const std::string problem =
        built.compare_gradient("w", values_of(c.at("expect").at("reduced")), real(c.at("expect").at("rtol")));
    if (!problem.empty()) return (sharding == Sharding::full ? "sharded: " : "replicated: ") + problem;
  }
  return "";
}

std::string check_update(const json& c, const World& world) {
  const at::ScalarType stored = dtype_of(c.at("storage_dtype"));
  ShardOptions options;
  options.param_dtype = dtype_of(c.at("compute_dtype"));
  CaseRoot built(parameter_w(json::array({c.at("init")}), stored), world, options);
  built.set_gradient(
      {{"name", "w"}, {"placement", "sharded"}, {"dtype", name_of(stored)}, {"grad", json::array({c.at("grad")})}});
  OptimizerConfig config;
  config.kind = OptimizerKind::sgd;
  config.weight_decay = 0;
  Optimizer optimizer(built.root(), config);
  for (int64_t i = 0; i < c.at("steps").get<int64_t>(); ++i) optimizer.step(real(c.at("lr")), {});
  built.root().publish();

  const json& expect = c.at("expect");
  const double rtol = real(expect.at("rtol"));
  std::string problem = built.compare_value("w", {real(expect.at("param"))}, rtol);
  const bool changed = !built.compare_value("w", {real(c.at("init"))}, 0).empty();
  if (problem.empty() && world.size() == 1 && changed != expect.at("changed").get<bool>())
    problem = std::string("changed got ") + (changed ? "true" : "false") + ", want " + expect.at("changed").dump();
  if (problem.empty() && expect.contains("compute_copy"))
    problem = difference("compute copy", gathered(built)[0], real(expect.at("compute_copy")), rtol);
  return problem;
}

// The cast of the gather.
std::string check_round(const json& c, const World& world) {
  ShardOptions options;
  options.param_dtype = dtype_of(c.at("to_dtype"));
  CaseRoot built(parameter_w(c.at("values"), dtype_of(c.at("from_dtype"))), world, options);
  return compare_list(gathered(built), values_of(c.at("expect").at("values")), real(c.at("expect").at("rtol")));
}

// ---- modes

Config config_of_mode(const std::string& mode) {
  const auto option = [](const char* key, const char* value) {
    return std::vector<OptionValue>{{key, std::string(value), "case"}};
  };
  if (mode == "bf16-mixed") return config_with("fsdp_norm", option("param_dtype", "bfloat16"));
  if (mode == "16-mixed") return config_with("amp", option("dtype", "float16"));
  if (mode == "32-true") return config_with("fsdp_norm");
  if (mode == "64-true") return config_with("double");
  throw std::runtime_error("no shipped plugin has the mode " + mode);
}

// A Linear as a model, which tells what its product came out in.
class OneLinear final : public Model {
 public:
  std::shared_ptr<torch::nn::Module> module() override { return linear_; }
  at::Tensor logits(const at::Tensor& inputs) override {
    return at::linear(inputs.to(linear_->weight.scalar_type()), linear_->weight);
  }
  std::string describe() const override { return "one linear layer"; }

 private:
  std::shared_ptr<torch::nn::LinearImpl> linear_ =
      std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(4, 4).bias(false));
};

std::string check_mode(const std::string& mode, const Config& config, const json& expect, const World& world) {
  OneLinear model;
  const ModulePlan plan = plan_units(*model.module(), false, {});
  PluginAtWork plugin(config, plan, world);
  const NumberFormats& formats = plugin.precision().formats();
  const std::shared_ptr<Root> root = Root::shard(model.module(), plan, world, shard_options({}, formats));
  Optimizer optimizer(*root, {});
  Gradients gradients(*root);
  const at::Tensor output = Forward(*root, model, formats)(at::ones({2, 4}));
  output.to(at::kDouble).sum().backward();

  json got;
  const at::Tensor shard = root->trainable().front()->shard();
  got["param_shard"] = name_of(shard.scalar_type());
  got["compute"] = name_of(output.scalar_type());
  got["grad_shard"] = name_of(shard.grad().scalar_type());
  got["optimizer_state"] = name_of(optimizer.buffers().front().scalar_type());
  root->visit_full(
      [&](const ParameterEntry&, const at::Tensor& whole) { got["checkpoint"] = name_of(whole.scalar_type()); });
  static_assert(std::is_same_v<decltype(gradients.norm(2)), double>);
  got["total_norm"] = "float64";
  got["loss_scaler"] = formats.scales_loss;
  for (const auto& [what, want] : expect.items()) {
    if (got.at(what) != want) return mode + ": " + what + " got " + got.at(what).dump() + ", want " + want.dump();
  }
  return "";
}

std::string check_dtypes(const json& c, const World& world) {
  const auto mode = c.at("mode").get<std::string>();
  std::string problem = check_mode(mode, config_of_mode(mode), c.at("expect"), world);
  if (problem.empty() && mode == "bf16-mixed") problem = check_mode("amp", config_with("amp"), c.at("expect"), world);
  return problem;
}

}  // namespace

std::string check_precision(const json& c, const World& world) {
  const auto kind = c.at("kind").get<std::string>();
  if (kind == "reduce") return check_reduce(c, world);
  if (kind == "update") return check_update(c, world);
  if (kind == "round") return check_round(c, world);
  if (kind == "dtypes") return check_dtypes(c, world);
  return "unknown kind of precision case: " + kind;
}

}  // namespace mantissa::cases
