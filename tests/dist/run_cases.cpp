// run_cases FILE...: runs case files (tests/dist/cases/README.md has their form) on real ranks, each case at its world
// size, through the engine and the gradient code. Prints every failing case with what it got and what was wanted, then
// `N passed, M failed`; exit 1 on a failure. Cases that this version cannot hold are listed with the reason, never
// passed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/module.h>
#include <nlohmann/json.hpp>

#include "fsdp/root.h"
#include "grad/gradients.h"
#include "mantissa/clip.h"
#include "support/ranks.h"

namespace mantissa {
namespace {

using nlohmann::json;

double real(const json& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.get<std::string>();
  if (text == "nan") return std::nan("");
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("not a number: " + text);
}

// A flat list, {"fill", "numel"} or {"segments": [...]}.
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

bool near(double got, double want, double rtol) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  return got == want || std::fabs(got - want) <= rtol * std::fabs(want);
}

std::string text(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  return buffer;
}

std::string reason_to_leave_out(const json& c) {
  const std::string op = c.value("op", "");
  if (op != "clip_norm" && op != "clip_value") return "no clip_norm or clip_value case";
  for (const json& p : c.at("params")) {
    const auto dtype = p.at("dtype").get<std::string>();
    if (dtype != "float32" && dtype != "float64") return dtype + " gradients";
  }
  return "";
}

// The root of a case: one unit for each number, one replicated unit for replicated parameters, the rest in the root.
class CaseRoot {
 public:
  CaseRoot(const json& params, const World& world) {
    ModulePlan plan;
    plan.units.push_back({"", nullptr, false, {}});
    std::map<std::pair<int, bool>, size_t> units{{{-1, false}, 0}};
    for (const json& p : params) {
      if (p.at("placement") == "tied") continue;
      const bool replicated = p.at("placement") == "replicated";
      const auto [unit, added] = units.emplace(std::pair{p.value("unit", -1), replicated}, plan.units.size());
      if (added) plan.units.push_back({"unit" + std::to_string(plan.units.size()), nullptr, replicated, {}});
      add_parameter(plan, p, unit->second, replicated);
    }
    root_ = Root::shard(std::make_shared<torch::nn::Module>("case"), plan, world, {});
    for (const json& p : params) set_gradient(p);
  }

  Root& root() { return *root_; }

  // What this rank holds of the gradient of `p` against the whole wanted one; "" if it agrees.
  std::string compare(const json& p, const std::vector<double>& want, double rtol) const {
    std::string difference;
    each_piece(p.at("name"), [&](const at::Tensor& gradient, const Piece& piece) {
      for (int64_t i = 0; i < piece.numel && difference.empty(); ++i) {
        const double got = gradient.defined() ? gradient[piece.shard_offset + i].item<double>() : 0;
        const double wanted = want[static_cast<size_t>(piece.parameter_offset + i)];
        if (!near(got, wanted, rtol))
          difference = p.at("name").get<std::string>() + "[" + std::to_string(piece.parameter_offset + i) + "] got " +
                       text(got) + ", want " + text(wanted);
      }
    });
    return difference;
  }

  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> copies;
    for (const FlatParameter* flat : root_->trainable())
      copies.push_back(flat->shard().grad().defined() ? flat->shard().grad().clone() : at::Tensor());
    return copies;
  }

  at::Tensor frozen_gradient(const std::string& name) const { return parameter(name).tensor.grad(); }

 private:
  static at::ScalarType type_of(const json& p) { return p.at("dtype") == "float64" ? at::kDouble : at::kFloat; }

  static void add_parameter(ModulePlan& plan, const json& p, size_t unit, bool replicated) {
    const bool trainable = p.at("placement") != "frozen";
    const auto shape = p.at("shape").get<std::vector<int64_t>>();
    const at::Tensor tensor = at::zeros(shape, type_of(p)).set_requires_grad(trainable);
    plan.units[unit].parameters.push_back(plan.parameters.size());
    if (trainable) plan.trainable.push_back(plan.parameters.size());
    plan.parameters.push_back({p.at("name"), {}, tensor, shape, trainable, unit, replicated});
  }

  const ParameterEntry& parameter(const std::string& name) const {
    for (const ParameterEntry& entry : root_->plan().parameters) {
      if (entry.name == name) return entry;
    }
    throw std::runtime_error("no parameter " + name);
  }

  template <class F>
  void each_piece(const std::string& name, F f) const {
    for (const FlatParameter* flat : root_->trainable()) {
      for (const Piece& piece : flat->pieces()) {
        if (flat->members()[piece.parameter].name == name) f(flat->shard().grad(), piece);
      }
    }
  }

  void set_gradient(const json& p) {
    if (p.at("grad").is_null()) return;
    const std::vector<double> whole = values_of(p.at("grad"));
    if (p.at("placement") == "frozen") {
      const at::Tensor& tensor = parameter(p.at("name")).tensor;
      at::Tensor gradient = at::zeros({static_cast<int64_t>(whole.size())}, tensor.scalar_type());
      for (size_t i = 0; i < whole.size(); ++i) gradient[static_cast<int64_t>(i)] = whole[i];
      at::Tensor(tensor).mutable_grad() = gradient.view(tensor.sizes());
      return;
    }
    for (FlatParameter* flat : root_->trainable()) {
      for (const Piece& piece : flat->pieces()) {
        if (flat->members()[piece.parameter].name != p.at("name")) continue;
        at::Tensor shard = flat->shard();
        if (!shard.grad().defined()) shard.mutable_grad() = at::zeros_like(shard.detach());
        const at::Tensor slice = shard.grad().narrow(0, piece.shard_offset, piece.numel);
        if (slice.scalar_type() == at::kDouble) {
          for (int64_t i = 0; i < piece.numel; ++i)
            slice.data_ptr<double>()[i] = whole[static_cast<size_t>(piece.parameter_offset + i)];
        } else {
          for (int64_t i = 0; i < piece.numel; ++i)
            slice.data_ptr<float>()[i] = static_cast<float>(whole[static_cast<size_t>(piece.parameter_offset + i)]);
        }
      }
    }
  }

  std::shared_ptr<Root> root_;
};

struct Outcome {
  std::string error = "false";
  double total_norm = 0;
  uint64_t messages = 0;
};

Outcome run_operation(const json& c, Root& root) {
  Outcome outcome;
  const uint64_t before = root.transport().messages();
  try {
    if (c.at("op") == "clip_norm") {
      outcome.total_norm = clip_grad_norm_(root, real(c.at("max_norm")), real(c.at("norm_type")),
                                           c.at("error_if_nonfinite").get<bool>());
    } else {
      clip_grad_value_(root, real(c.at("clip_value")));
    }
  } catch (const UsageError&) {
    outcome.error = "invalid_argument";
  } catch (const Diverged&) {
    outcome.error = "nonfinite";
  }
  outcome.messages = root.transport().messages() - before;
  return outcome;
}

std::string wanted_error(const json& expect) {
  return expect.at("error").is_string() ? expect.at("error").get<std::string>() : "false";
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined()) return false;
    if (a[i].defined() && std::memcmp(a[i].const_data_ptr(), b[i].const_data_ptr(), a[i].nbytes()) != 0) return false;
  }
  return true;
}

// "" if the case holds on this rank.
std::string check(const json& c, const World& world) {
  CaseRoot built(c.at("params"), world);
  const std::vector<at::Tensor> before = built.gradients();
  const Outcome outcome = run_operation(c, built.root());
  const json& expect = c.at("expect");
  const double rtol = expect.at("rtol").get<double>();
  const bool by_norm = c.at("op") == "clip_norm";

  if (outcome.error != wanted_error(expect)) return "error got " + outcome.error + ", want " + wanted_error(expect);
  if (expect.contains("collectives") && outcome.messages != expect.at("collectives").get<uint64_t>() &&
      world.size() > 1) {
    return "messages got " + std::to_string(outcome.messages) + ", want " + expect.at("collectives").dump();
  }
  if (expect.value("grads_unchanged", false) && !same_bits(before, built.gradients()))
    return "gradients changed, want every bit as before";
  if (by_norm && outcome.error == "false" && !expect.at("total_norm").is_null()) {
    if (!near(outcome.total_norm, real(expect.at("total_norm")), rtol))
      return "total_norm got " + text(outcome.total_norm) + ", want " + text(real(expect.at("total_norm")));
    std::vector<double> norms = built.root().transport().all_gather(std::vector<double>{outcome.total_norm});
    for (double norm : norms) {
      if (std::memcmp(&norm, &norms[0], sizeof norm) != 0)
        return "total_norm differs between ranks: " + text(norms[0]) + " and " + text(norm);
    }
  }
  for (const json& p : c.at("params")) {
    const json& want = expect.at("grads").at(p.at("name").get<std::string>());
    if (want.is_null() || p.at("placement") == "tied") continue;
    if (p.at("placement") == "frozen") {
      const at::Tensor gradient = built.frozen_gradient(p.at("name")).reshape({-1});
      const std::vector<double> whole = values_of(want);
      for (size_t i = 0; i < whole.size(); ++i) {
        if (gradient[static_cast<int64_t>(i)].item<double>() != whole[i])
          return "frozen " + p.at("name").get<std::string>() + " changed";
      }
      continue;
    }
    const std::string difference = built.compare(p, values_of(want), expect.value("grads_rtol", 0.0));
    if (!difference.empty()) return difference;
  }
  if (expect.contains("norm_after") && !expect.at("norm_after").is_null()) {
    const double after = total_norm(built.root(), real(c.at("norm_type")));
    if (!near(after, real(expect.at("norm_after")), std::max(rtol, 1e-6)))
      return "norm after clipping got " + text(after) + ", want " + text(real(expect.at("norm_after")));
  }
  if (expect.contains("coef") && !expect.at("coef").is_null()) {
    const double coef = clip_coef(real(c.at("max_norm")), outcome.total_norm);
    if (!near(coef, real(expect.at("coef")), std::max(rtol, 1e-12)))
      return "coef got " + text(coef) + ", want " + text(real(expect.at("coef")));
  }
  return "";
}

struct Case {
  std::string file;
  json content;
};

// Runs all cases of one world size on one set of ranks; rank 0 prints, and adds to the file `tally`.
void run_world(const std::vector<const Case*>& cases, const World& world, const std::string& tally) {
  std::ofstream out;
  if (world.rank() == 0) out.open(tally, std::ios::app);
  for (const Case* c : cases) {
    std::string problem;
    try {
      problem = check(c->content, world);
    } catch (const CommError&) {
      throw;
    } catch (const PeerFailed&) {
      throw;
    } catch (const std::exception& error) {
      problem = std::string("exception: ") + error.what();
    }
    const double failures = world.all_reduce(problem.empty() ? 0 : 1);
    if (!problem.empty())
      std::printf("FAILED %s (%s, rank %d of %d): %s\n", c->content.at("id").get<std::string>().c_str(),
                  c->file.c_str(), world.rank(), world.size(), problem.c_str());
    std::fflush(stdout);
    if (world.rank() == 0) out << (failures == 0 ? "passed\n" : "failed\n") << std::flush;
  }
}

int run(const std::vector<std::string>& files) {
  std::vector<Case> cases;
  size_t left_out = 0;
  for (const std::string& file : files) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error("cannot read " + file);
    for (const json& c : json::parse(in)) {
      const std::string reason = reason_to_leave_out(c);
      if (reason.empty()) {
        cases.push_back({file, c});
      } else {
        ++left_out;
        std::printf("left out: %s (%s)\n", c.at("id").get<std::string>().c_str(), reason.c_str());
      }
    }
  }
  std::map<int, std::vector<const Case*>> by_world;
  for (const Case& c : cases) by_world[c.content.at("world").get<int>()].push_back(&c);

  char tally[] = "/tmp/mantissa-cases-XXXXXX";
  const int fd = mkstemp(tally);
  if (fd < 0) throw std::runtime_error("cannot make a temporary file");
  close(fd);
  std::fflush(stdout);
  for (const auto& [world_size, group] : by_world) {
    const JobOutcome outcome =
        test::job_on_ranks(world_size, [&, &list = group](const World& world) { run_world(list, world, tally); });
    if (outcome.exit_code != 0) std::printf("world of %d: %s\n", world_size, outcome.message.c_str());
  }
  size_t passed = 0;
  std::ifstream in(tally);
  for (std::string line; std::getline(in, line);) passed += line == "passed";
  std::remove(tally);
  if (left_out > 0) std::printf("%zu left out, reasons above\n", left_out);
  std::printf("%zu passed, %zu failed\n", passed, cases.size() - passed);
  return passed == cases.size() && passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace mantissa

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::runtime_error("usage: run_cases FILE...");
    return mantissa::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "run_cases: %s\n", error.what());
    return 2;
  }
}
