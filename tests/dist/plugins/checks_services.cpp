// Holds the services of the host against each other in every step; fails with the first that does not agree.
#include <cmath>
#include <string>
#include <vector>

#include <mantissa/precision.hpp>

namespace {

class ChecksServices final : public mts::Precision {
 public:
  using mts::Precision::Precision;

  void plan(mts_plan& plan) override { plan.storage_dtype = MTS_F32; }

  double clip(const mts_step& step, const mts_clip& limits) override {
    if (step.index > 0) expect_parameters(static_cast<double>(step.index));
    const double before = grad_norm(2);
    expect("norm from spans", norm_from_spans(MTS_GRAD), before);
    expect("norm from param_norms", joined(param_norms(MTS_GRAD, 2)), before);
    expect("grad_norm after reading", grad_norm(2), before);

    const double clipped = std::fmin(before, limits.limit);
    expect("what clip_grad_norm returns", clip_grad_norm(limits.limit, limits.norm_type), before);
    expect("param_norms after clipping", joined(param_norms(MTS_GRAD, 2)), clipped);
    expect("norm from spans after clipping", norm_from_spans(MTS_GRAD), clipped);

    each_element(MTS_GRAD, MTS_WRITE, [](float& value) { value *= 4; });
    expect("norm after writing", grad_norm(2), 4 * clipped);
    scale_grads(0.5);
    expect("norm after scale_grads", grad_norm(2), 2 * clipped);

    std::vector<double> factors(root_info().num_params, 0.5);
    const std::vector<double> norms = param_norms(MTS_GRAD, 2);
    scale_each_grad(factors);
    expect("norm after scale_each_grad", grad_norm(2), clipped);
    factors.assign(factors.size(), 1);
    factors[0] = 0;
    scale_each_grad(factors);
    expect("norm without the first", grad_norm(2), std::sqrt(clipped * clipped - norms[0] * norms[0] / 4));
    expect("infinity norm", grad_norm(std::numeric_limits<double>::infinity()), largest());
    metric("checked", static_cast<double>(step.index));
    return before;
  }

  void update(const mts_step& step) override {
    const auto value = static_cast<float>(step.index + 1);
    each_element(MTS_PARAM, MTS_WRITE, [&](float& parameter) { parameter = value; });
    expect_parameters(value);
    expect("norm of the parameters", joined(param_norms(MTS_PARAM, 2)),
           value * std::sqrt(static_cast<double>(root_info().num_elements)));
  }

 private:
  template <class F>
  void each_element(mts_tensor_kind kind, mts_access access, F f) {
    for (uint64_t param = 0; param < root_info().num_params; ++param) {
      const mts_span piece = span(param, kind, access);
      if (piece.dtype != MTS_F32) throw mts::Failure(MTS_INTERNAL, "a span is not of float32");
      if (piece.num_elements != param_info(param).local_elements)
        throw mts::Failure(MTS_INTERNAL, "a span is not as long as param_info says");
      for (uint64_t i = 0; i < piece.num_elements; ++i) f(static_cast<float*>(piece.data)[i]);
    }
  }

  // Replicated parameters lie on every rank and count on the first.
  double norm_from_spans(mts_tensor_kind kind) {
    double sum = 0;
    const mts_root_info info = root_info();
    for (uint64_t param = 0; param < info.num_params; ++param) {
      const mts_span piece = span(param, kind, MTS_READ);
      if (param_info(param).replicated == 1 && info.rank != 0) continue;
      for (uint64_t i = 0; i < piece.num_elements; ++i) {
        const double value = static_cast<float*>(piece.data)[i];
        sum += value * value;
      }
    }
    std::vector<double> sums{sum};
    all_reduce(sums, MTS_SUM);
    return std::sqrt(sums[0]);
  }

  double largest() {
    double found = 0;
    each_element(MTS_GRAD, MTS_READ, [&](float& value) { found = std::fmax(found, std::fabs(value)); });
    std::vector<double> all{found};
    all_reduce(all, MTS_MAX);
    return all[0];
  }

  static double joined(const std::vector<double>& norms) {
    double sum = 0;
    for (const double norm : norms) sum += norm * norm;
    return std::sqrt(sum);
  }

  void expect_parameters(double value) {
    each_element(MTS_PARAM, MTS_READ, [&](float& parameter) { expect("a parameter", parameter, value); });
  }

  static void expect(const std::string& what, double got, double want) {
    if (std::fabs(got - want) <= 1e-5 * std::fabs(want)) return;  // clip_coef has an epsilon of 1e-6
    throw mts::Failure(MTS_INTERNAL, what + " is " + std::to_string(got) + ", want " + std::to_string(want));
  }
};

}  // namespace

MTS_EXPORT_PRECISION(ChecksServices, "checks_services", "1.0.0", "tests", "for tests", mts::clips(MTS_CLIP_NORM),
                     mts::NoOptions());
