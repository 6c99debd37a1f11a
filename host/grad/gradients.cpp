#include "grad/gradients.h"

#include <cmath>

#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/number_text.h"

namespace mantissa {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Calls f(std::span<T>, member) for each stretch of gradient that this rank holds and that counts: no padding, nothing
// frozen.
template <class F>
void each_piece(Root& root, F f) {
  for (const FlatParameter* flat : root.trainable()) {
    const at::Tensor& gradient = flat->shard().grad();
    if (!gradient.defined()) continue;
    for (const Piece& piece : flat->pieces()) {
      const auto begin = piece.shard_offset;
      const auto size = static_cast<size_t>(piece.numel);
      if (gradient.scalar_type() == at::kDouble) {
        f(std::span<double>(gradient.data_ptr<double>() + begin, size), *flat, piece);
      } else {
        f(std::span<float>(gradient.data_ptr<float>() + begin, size), *flat, piece);
      }
    }
  }
}

bool counts_here(const Root& root, const FlatParameter& flat) {
  return !flat.replicated() || const_cast<Root&>(root).transport().rank() == 0;
}

}  // namespace

void check_norm_type(double norm_type) {
  if (!is_norm_type(norm_type))
    throw UsageError("norm_type is " + short_text(norm_type, 6) + ", need a number in (0, inf]");
}

void check_limit(const char* what, double limit) {
  if (!(limit >= 0)) throw UsageError(std::string(what) + " is " + short_text(limit, 6) + ", need a number >= 0");
}

void Gradients::begin_step(const PartialNorm& agreed) {
  begin_step();
  known_ = agreed;
  known_is_valid_ = true;
}

void Gradients::begin_step() {
  scaling_ = {};
  known_is_valid_ = modified_ = false;
}

double Gradients::norm(double norm_type) {
  check_norm_type(norm_type);
  check_reduced();
  if (scaling_.limit != kInfinity) apply();  // a clamped norm cannot be had by a factor
  if (!known_is_valid_ || known_.norm_type != norm_type) {
    Packet packet;
    packet.set_norm(measure(norm_type));
    packet.fingerprint = root_.call_hash();
    const PartialNorm agreed = root_.exchange().agree(Operation::grad_norm, packet).norm;
    if (!known_is_valid_ || known_.norm_type == norm_type) known_ = agreed, known_is_valid_ = true;
    return agreed.value() * scaling_.factor;
  }
  return known_.value() * scaling_.factor;
}

double Gradients::clip_norm(double max_norm, double norm_type) {
  check_limit("max_norm", max_norm);
  const double total_norm = norm(norm_type);
  if (std::isfinite(total_norm)) scale(clip_coef(max_norm, total_norm));
  return total_norm;
}

void Gradients::clip_value(double limit) {
  check_limit("clip value", limit);
  check_reduced();
  scaling_.clamp(limit);
}

void Gradients::scale(double factor) {
  if (!(factor >= 0) || factor == kInfinity)
    throw UsageError("factor is " + short_text(factor, 6) + ", need a finite number >= 0");
  check_reduced();
  scaling_.scale(factor);
  if (factor == 0) apply();  // the limit would be 0 * inf
}

void Gradients::apply() {
  if (scaling_.is_identity()) return;
  if (std::isnan(scaling_.limit)) scaling_.limit = kInfinity;
  each_piece(root_, [&](auto gradient, const FlatParameter&, const Piece&) { mantissa::apply(gradient, scaling_); });
  scaling_ = {};
  known_is_valid_ = false;
  modified_ = true;
}

PartialNorm Gradients::measure(double norm_type) const {
  PartialNorm norm{norm_type};
  each_piece(root_, [&]<class T>(std::span<T> gradient, const FlatParameter& flat, const Piece&) {
    if (counts_here(root_, flat)) norm.add(measure_norm(std::span<const T>(gradient), norm_type));
  });
  return norm;
}

PartialNorm Gradients::partial_norm_scaled(double norm_type) {
  PartialNorm norm{norm_type};
  each_piece(root_, [&]<class T>(std::span<T> gradient, const FlatParameter& flat, const Piece&) {
    if (!counts_here(root_, flat)) return;
    std::vector<T> scaled(gradient.begin(), gradient.end());
    mantissa::apply(std::span<T>(scaled), scaling_);
    norm.add(measure_norm(std::span<const T>(scaled), norm_type));
  });
  return norm;
}

std::vector<NonfiniteParameter> Gradients::nonfinite_parameters() {
  const ModulePlan& plan = root_.plan();
  std::vector<double> counts(plan.parameters.size());
  each_piece(root_, [&]<class T>(std::span<T> gradient, const FlatParameter& flat, const Piece& piece) {
    if (!counts_here(root_, flat)) return;
    counts[flat.members()[piece.parameter].parameter] +=
        static_cast<double>(measure_norm(std::span<const T>(gradient), kInfinity).nonfinite);
  });
  root_.exchange().all_reduce(counts, ReduceOp::sum);
  std::vector<NonfiniteParameter> found;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) found.push_back({plan.parameters[i].name, static_cast<uint64_t>(counts[i])});
  }
  return found;
}

void Gradients::check_reduced() const {
  if (!root_.gradients_reduced()) {
    throw OrderError(
        "gradients are not reduced yet: a norm or a clip is possible only after backward has ended, on the last "
        "micro-batch");
  }
}

}  // namespace mantissa
