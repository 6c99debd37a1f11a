#include "grad/gradients.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "base/number_text.h"

namespace mantissa {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargestFactor = std::numeric_limits<float>::max();  // above, 0 times it would be NaN in float32

// Calls f(std::span<T>, flat, piece) for each stretch of `values_of(flat)` that this rank holds and that counts: no
// padding, nothing frozen. Undefined values are passed by.
template <class ValuesOf, class F>
void each_piece(const Root& root, ValuesOf values_of, F f) {
  for (const FlatParameter* flat : root.trainable()) {
    const at::Tensor values = values_of(*flat);
    if (!values.defined()) continue;
    with_element_type(values.scalar_type(), [&]<class T>(std::type_identity<T>) {
      for (const Piece& piece : flat->pieces()) {
        f(std::span<T>(values.data_ptr<T>() + piece.shard_offset, static_cast<size_t>(piece.numel)), *flat, piece);
      }
    });
  }
}

at::Tensor gradient_of(const FlatParameter& flat) { return flat.shard().grad(); }
at::Tensor value_of(const FlatParameter& flat) { return flat.shard().detach(); }

template <class F>
void each_gradient(const Root& root, F f) {
  each_piece(root, gradient_of, f);
}

size_t parameter_of(const FlatParameter& flat, const Piece& piece) { return flat.members()[piece.parameter].parameter; }

bool counts_here(const Root& root, const FlatParameter& flat) {
  return !flat.replicated() || const_cast<Root&>(root).transport().rank() == 0;
}

// [all ranks] Joins `mine`, one part each, over the ranks; each element multiplied by `factor`.
std::vector<double> join(Exchange& exchange, const std::vector<PartialNorm>& mine, double factor) {
  std::vector<double> numbers;
  for (const PartialNorm& part : mine) numbers.insert(numbers.end(), {part.largest, part.scaled_sum});
  const std::vector<double> all = exchange.all_gather(numbers);
  std::vector<double> norms;
  for (size_t i = 0; i < mine.size(); ++i) {
    PartialNorm joined{mine[i].norm_type};
    for (size_t at = 2 * i; at < all.size(); at += numbers.size())
      joined.add({joined.norm_type, all[at], all[at + 1], 0});
    norms.push_back(joined.scaled(factor).value());
  }
  return norms;
}

// [all ranks] The norms of all trainable parameters, each element multiplied by `factor`.
template <class ValuesOf>
std::vector<double> joined_norms(Root& root, double norm_type, ValuesOf values_of, double factor) {
  const ModulePlan& plan = root.plan();
  std::vector<PartialNorm> parts(plan.parameters.size(), PartialNorm{norm_type});
  each_piece(root, values_of, [&]<class T>(std::span<T> values, const FlatParameter& flat, const Piece& piece) {
    if (counts_here(root, flat))
      parts[parameter_of(flat, piece)].add(measure_norm(std::span<const T>(values), norm_type));
  });
  std::vector<PartialNorm> mine;
  for (const size_t parameter : plan.trainable) mine.push_back(parts[parameter]);
  return join(root.exchange(), mine, factor);
}

at::Tensor stretch_of(const at::Tensor& values, const TrainablePiece& piece) {
  if (!values.defined()) return at::empty({0}, piece.flat->shard().scalar_type());
  return values.narrow(0, piece.shard_offset, piece.numel);
}

void check_factor(double factor) {
  if (!(factor >= 0) || factor == kInfinity)
    throw UsageError("factor is " + short_text(factor, 6) + ", need a finite number >= 0");
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
  own_ = root_.partial_norm();
  known_is_valid_ = true;
}

void Gradients::begin_step() {
  scaling_ = {};
  factor_ = 1;
  applied_limit_ = kInfinity;
  written_ = false;
  asked_hash_ = 0;
  loss_scale_.reset();
  unscaled_by_ = 1;
  known_is_valid_ = false;
}

void Gradients::begin_scaled_step(const PartialNorm& agreed, double loss_scale) {
  begin_step(agreed);
  loss_scale_ = loss_scale;
}

bool Gradients::unscale(double loss_scale) {
  if (!loss_scale_) {
    throw OrderError(
        "gradients were unscaled already, or their loss was not scaled: unscale is possible once a step, before "
        "anything else is done to them");
  }
  if (loss_scale != *loss_scale_) {
    throw UsageError("gradients are to be unscaled by " + short_text(loss_scale, 9) +
                     ", but the loss was multiplied by " + short_text(*loss_scale_, 9));
  }
  loss_scale_.reset();
  scaling_.unscale = unscaled_by_ = 1 / loss_scale;
  return known_.nonfinite > 0 || leaves_type(known_.scaled(scaling_.unscale).largest);
}

void Gradients::written() {
  if (!written_) ask(kInfinity);
  written_ = true;
  applied_limit_ = kInfinity;
  known_is_valid_ = false;
}

// FNV-1a over the bits.
void Gradients::ask(double number) {
  asked_hash_ = (asked_hash_ ^ std::bit_cast<uint64_t>(number)) * 0x100000001b3ull + 1;
}

double Gradients::norm(double norm_type) {
  check_norm_type(norm_type);
  check_ready();
  if (scaling_.clamps()) apply();  // a clamped norm cannot be had by a factor
  if (!known_is_valid_ || known_.norm_type != norm_type) {
    Packet packet;
    const PartialNorm own = measure(norm_type);
    packet.set_norm(own);
    packet.fingerprint = root_.call_hash();
    const PartialNorm agreed = root_.exchange().agree(Operation::grad_norm, packet).norm;
    if (!known_is_valid_ && !written_) known_ = agreed, own_ = own, known_is_valid_ = true;
    return agreed.scaled(scaling_.product()).value();
  }
  return norm_scaled();
}

std::vector<double> Gradients::norms(double norm_type) {
  check_norm_type(norm_type);
  check_ready();
  if (scaling_.clamps()) apply();
  return joined_norms(root_, norm_type, gradient_of, scaling_.product());
}

std::vector<double> Gradients::unit_norms() const {
  std::vector<PartialNorm> mine;
  for (size_t unit = 0; unit < root_.plan().units.size(); ++unit) mine.push_back(root_.partial_norm(unit));
  return join(root_.exchange(), mine, unscaled_by_);
}

double Gradients::clip_norm(double max_norm, double norm_type) {
  check_limit("max_norm", max_norm);
  const double total_norm = norm(norm_type);
  if (std::isfinite(total_norm)) scale(clip_coef(max_norm, total_norm));
  return total_norm;
}

void Gradients::clip_value(double limit) {
  check_limit("clip value", limit);
  check_ready();
  ask(-limit);
  scaling_.clamp(limit);
}

void Gradients::scale(double factor) {
  check_factor(factor);
  check_ready();
  factor_ *= factor;
  applied_limit_ = factor == 0 ? 0 : applied_limit_ * factor;
  ask(factor);
  if (!scaling_.can_scale(factor)) apply();
  if (factor > kLargestFactor) {
    scaling_.scale(kLargestFactor);
    apply();
    factor /= kLargestFactor;
  }
  scaling_.scale(factor);
  if (factor == 0) apply();  // the limit would be 0 * inf
}

void Gradients::scale_each(std::span<const double> factors) {
  const ModulePlan& plan = root_.plan();
  if (factors.size() != plan.trainable.size()) {
    throw UsageError("got " + std::to_string(factors.size()) + " factors, need one for each of the " +
                     std::to_string(plan.trainable.size()) + " trainable parameters");
  }
  for (const double factor : factors) check_factor(factor);
  check_ready();
  apply();
  std::vector<double> factor_of(plan.parameters.size(), 1);
  for (size_t i = 0; i < factors.size(); ++i) {
    ask(factors[i]);
    factor_of[plan.trainable[i]] = factors[i];
  }
  each_gradient(root_, [&](auto gradient, const FlatParameter& flat, const Piece& piece) {
    DeferredScaling scaling;
    scaling.factor = factor_of[parameter_of(flat, piece)];
    if (scaling.factor > kLargestFactor) {
      mantissa::apply(gradient, {kLargestFactor});
      scaling.factor /= kLargestFactor;
    }
    mantissa::apply(gradient, scaling);
  });
  applied_limit_ = kInfinity;
  known_is_valid_ = false;
}

at::Tensor Gradients::piece(size_t trainable) {
  check_ready();
  apply();
  const TrainablePiece& piece = root_.trainable_pieces().at(trainable);
  return stretch_of(gradient_of(*piece.flat), piece);
}

void Gradients::apply() {
  if (scaling_.is_identity()) return;
  if (std::isnan(scaling_.limit)) scaling_.limit = kInfinity;
  each_gradient(root_, [&](auto gradient, const FlatParameter&, const Piece&) { mantissa::apply(gradient, scaling_); });
  if (scaling_.clamps()) {
    applied_limit_ = std::min(applied_limit_, scaling_.limit);
    known_is_valid_ = false;
  } else {
    known_ = known_.scaled(scaling_.product());
    own_ = own_.scaled(scaling_.product());
  }
  scaling_ = {};
}

PartialNorm Gradients::measure(double norm_type) const {
  PartialNorm norm{norm_type};
  each_gradient(root_, [&]<class T>(std::span<T> gradient, const FlatParameter& flat, const Piece&) {
    if (counts_here(root_, flat)) norm.add(measure_norm(std::span<const T>(gradient), norm_type));
  });
  return norm;
}

PartialNorm Gradients::partial_norm_scaled(double norm_type) const {
  if (known_is_valid_ && known_.norm_type == norm_type && !scaling_.clamps()) return own_.scaled(scaling_.product());
  PartialNorm norm{norm_type};
  each_gradient(root_, [&]<class T>(std::span<T> gradient, const FlatParameter& flat, const Piece&) {
    if (!counts_here(root_, flat)) return;
    std::vector<T> scaled(gradient.begin(), gradient.end());
    mantissa::apply(std::span<T>(scaled), scaling_);
    norm.add(measure_norm(std::span<const T>(scaled), norm_type));
  });
  return norm;
}

std::vector<NonfiniteParameter> Gradients::nonfinite_parameters() {
  const ModulePlan& plan = root_.plan();
  std::vector<double> counts(plan.parameters.size()), firsts(plan.parameters.size(), kInfinity);
  each_gradient(root_, [&]<class T>(std::span<T> gradient, const FlatParameter& flat, const Piece& piece) {
    if (!counts_here(root_, flat)) return;
    const size_t parameter = parameter_of(flat, piece);
    counts[parameter] += static_cast<double>(measure_norm(std::span<const T>(gradient), kInfinity).nonfinite);
    if (counts[parameter] == 0) return;
    const auto bad = std::find_if(gradient.begin(), gradient.end(),
                                  [](T value) { return !std::isfinite(static_cast<double>(value)); });
    firsts[parameter] = static_cast<double>(piece.parameter_offset + (bad - gradient.begin()));
  });
  root_.exchange().all_reduce(counts, ReduceOp::sum);
  root_.exchange().all_reduce(firsts, ReduceOp::min);
  std::vector<NonfiniteParameter> found;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0)
      found.push_back({plan.parameters[i].name, static_cast<uint64_t>(counts[i]), static_cast<uint64_t>(firsts[i])});
  }
  return found;
}

void Gradients::check_ready() const {
  if (!root_.gradients_reduced()) {
    throw OrderError(
        "gradients are not reduced yet: a norm or a clip is possible only after backward has ended, on the last "
        "micro-batch");
  }
  if (loss_scale_) {
    throw OrderError("gradients are still multiplied by the loss scale " + short_text(*loss_scale_, 9) +
                     ": unscale them before anything else is done to them");
  }
}

// The largest magnitude of a gradient does not fit into the type that it is kept in; shards of two types count as the
// narrower.
bool Gradients::leaves_type(double largest) const {
  for (const FlatParameter* flat : root_.trainable()) {
    const bool leaves = with_element_type(flat->shard().scalar_type(), [&]<class T>(std::type_identity<T>) {
      return std::isinf(static_cast<double>(static_cast<T>(largest)));
    });
    if (leaves) return true;
  }
  return false;
}

std::vector<double> parameter_norms(Root& root, double norm_type) {
  check_norm_type(norm_type);
  return joined_norms(root, norm_type, value_of, 1);
}

at::Tensor parameter_piece(const Root& root, size_t trainable) {
  const TrainablePiece& piece = root.trainable_pieces().at(trainable);
  return stretch_of(value_of(*piece.flat), piece);
}

}  // namespace mantissa
