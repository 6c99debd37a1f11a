// A norm, a clip, a refusal: through mantissa/clip.h, on gradients that lie on the ranks.
#include <cmath>
#include <cstring>

#include "case_root.h"
#include "checks.h"
#include "grad/scaling.h"
#include "mantissa/clip.h"

namespace mantissa::cases {
namespace {

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

}  // namespace

std::string check_clip(const json& c, const World& world) {
  CaseRoot built(c.at("params"), world);
  for (const json& p : c.at("params")) built.set_gradient(p);
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
      const at::Tensor gradient = built.parameter(p.at("name")).tensor.grad().reshape({-1});
      const std::vector<double> whole = values_of(want);
      for (size_t i = 0; i < whole.size(); ++i) {
        if (!near(gradient[static_cast<int64_t>(i)].item<double>(), whole[i], 0))
          return "frozen " + p.at("name").get<std::string>() + " changed";
      }
      continue;
    }
    const std::string difference =
        built.compare_gradient(p.at("name"), values_of(want), expect.value("grads_rtol", 0.0));
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

}  // namespace mantissa::cases
