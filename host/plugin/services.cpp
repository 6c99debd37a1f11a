#include "plugin/services.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace mantissa {
namespace {

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

HostServices& self(const mts_host* host) { return *static_cast<HostServices*>(host->self); }

log::Level level_of(mts_log_level level) {
  switch (level) {
    case MTS_LOG_DEBUG: return log::Level::debug;
    case MTS_LOG_WARNING: return log::Level::warning;
    case MTS_LOG_ERROR: return log::Level::error;
    default: return log::Level::info;
  }
}

void log_line(log::Level level, const std::string& text) {
  switch (level) {
    case log::Level::debug: return log::debug(text);
    case log::Level::info: return log::info(text);
    case log::Level::warning: return log::warning(text);
    case log::Level::error: return log::error(text);
  }
}

// Writes what both sides know of a struct, and says how much that was.
template <class T>
void fill(T* out, T filled) {
  const uint64_t known = std::min<uint64_t>(out->header.struct_size, sizeof filled);
  filled.header = {known, MTS_ABI_MAJOR, MTS_ABI_MINOR};
  std::memcpy(out, &filled, known);
}

}  // namespace

const char* name(Slot slot) {
  switch (slot) {
    case Slot::none: return "none";
    case Slot::create: return "create";
    case Slot::plan: return "plan";
    case Slot::loss_scale: return "loss_scale";
    case Slot::unscale: return "unscale";
    case Slot::clip: return "clip";
    case Slot::decide: return "decide";
    case Slot::update: return "update";
    case Slot::destroy: return "destroy";
  }
  return "unknown";
}

const char* name(mts_status status) {
  switch (status) {
    case MTS_OK: return "MTS_OK";
    case MTS_INVALID: return "MTS_INVALID";
    case MTS_UNSUPPORTED: return "MTS_UNSUPPORTED";
    case MTS_STALE: return "MTS_STALE";
    case MTS_ORDER: return "MTS_ORDER";
    case MTS_NONFINITE: return "MTS_NONFINITE";
    case MTS_COMM: return "MTS_COMM";
    case MTS_NO_MEMORY: return "MTS_NO_MEMORY";
    case MTS_ABSENT: return "MTS_ABSENT";
    default: return "MTS_INTERNAL";
  }
}

std::exception_ptr slot_failure(const std::string& plugin_id, Slot slot, mts_status status, const std::string& text) {
  const std::string message =
      "plugin " + plugin_id + ": " + name(slot) + " failed with " + name(status) + (text.empty() ? "" : ": " + text);
  if (slot == Slot::create) return std::make_exception_ptr(PluginRefused("create-failed", message));
  if (slot == Slot::plan) return std::make_exception_ptr(PluginRefused("bad-plan", message));
  if (status == MTS_NONFINITE) return std::make_exception_ptr(Diverged(message));
  return std::make_exception_ptr(Error(message));
}

// The functions behind mts_host, in its order. None lets an exception out.
struct ServiceTable {
  static void log(const mts_host* host, mts_log_level level, const char* message) {
    log_line(level_of(level), "plugin " + self(host).plugin_id_ + ": " + text_of(message));
  }

  static mts_status fail(const mts_host* host, mts_status status, const char* message) {
    self(host).text_ = text_of(message);
    return status;
  }

  static const void* extension(const mts_host*, const char*) { return nullptr; }

  static mts_status option(const mts_host* host, const char* key, mts_option* out) {
    HostServices& services = self(host);
    if (out == nullptr || !MTS_KNOWS(mts_option, out, string))
      return services.refuse(MTS_INVALID, "option: set the struct's header by MTS_HEADER first");
    for (const CheckedOption& option : services.options_) {
      if (option.key != text_of(key)) continue;
      mts_option filled{};
      filled.type = option.type;
      filled.boolean = option.boolean ? 1 : 0;
      filled.integer = option.integer;
      filled.real = option.real;
      filled.string = option.type == MTS_OPTION_STRING ? option.string.c_str() : nullptr;
      fill(out, filled);
      return MTS_OK;
    }
    return MTS_ABSENT;
  }

  static void metric(const mts_host*, const char*, double) {}
  static mts_status put_state(const mts_host*, const void*, uint64_t) { return MTS_UNSUPPORTED; }
  static mts_status put_fact(const mts_host*, const char*, double) { return MTS_UNSUPPORTED; }
  static mts_status get_fact(const mts_host*, const char*, double*) { return MTS_UNSUPPORTED; }

  static mts_status root_info(const mts_host* host, mts_root root, mts_root_info* out) {
    HostServices& services = self(host);
    if (!services.is_mine(root)) return services.refuse(MTS_STALE, "root_info: not the handle that create was given");
    if (out == nullptr || !MTS_KNOWS(mts_root_info, out, device_index))
      return services.refuse(MTS_INVALID, "root_info: set the struct's header by MTS_HEADER first");
    mts_root_info filled{};
    filled.rank = static_cast<uint32_t>(services.exchange_.transport().rank());
    filled.world_size = static_cast<uint32_t>(services.exchange_.transport().world_size());
    filled.num_params = services.parameters_.size();
    filled.num_elements = services.num_elements_;
    filled.device_type = 1;
    fill(out, filled);
    return MTS_OK;
  }

  static mts_status param_info(const mts_host* host, mts_root root, uint64_t param, mts_param_info* out) {
    HostServices& services = self(host);
    if (!services.is_mine(root)) return services.refuse(MTS_STALE, "param_info: not the handle that create was given");
    if (param >= services.parameters_.size())
      return services.refuse(MTS_INVALID, "param_info: no parameter " + std::to_string(param) + ", there are " +
                                              std::to_string(services.parameters_.size()));
    if (out == nullptr || !MTS_KNOWS(mts_param_info, out, dims))
      return services.refuse(MTS_INVALID, "param_info: set the struct's header by MTS_HEADER first");
    const HostServices::ParameterView& view = services.parameters_[param];
    mts_param_info filled{};
    filled.name = view.name.c_str();
    filled.num_elements = view.num_elements;
    filled.local_offset = view.local_offset;
    filled.local_elements = view.local_elements;
    filled.num_dims = static_cast<uint32_t>(view.dims.size());
    filled.replicated = view.replicated ? 1 : 0;
    filled.dims = view.dims.data();
    fill(out, filled);
    return MTS_OK;
  }

  static mts_status all_reduce(const mts_host* host, mts_root root, double* values, uint64_t count, mts_reduce_op op) {
    HostServices& services = self(host);
    if (!services.is_mine(root)) return services.refuse(MTS_STALE, "all_reduce: not the handle that create was given");
    if (services.slot_ == Slot::none || services.slot_ == Slot::destroy)
      return services.refuse(MTS_ORDER, "all_reduce: outside a slot, or in destroy");
    if (values == nullptr && count > 0) return services.refuse(MTS_INVALID, "all_reduce: values is NULL");
    if (op != MTS_SUM && op != MTS_MIN && op != MTS_MAX)
      return services.refuse(MTS_UNSUPPORTED, "all_reduce: unknown operation " + std::to_string(op));
    return services.collective([&] {
      std::vector<double> reduced(values, values + count);
      services.exchange_.all_reduce(reduced, op == MTS_SUM   ? ReduceOp::sum
                                             : op == MTS_MIN ? ReduceOp::min
                                                             : ReduceOp::max);
      std::copy(reduced.begin(), reduced.end(), values);
    });
  }

  static mts_status span(const mts_host* host, mts_root, uint64_t, mts_tensor_kind, mts_access, mts_span*) {
    return self(host).refuse(MTS_UNSUPPORTED, "span is not offered by this version of the host");
  }
  static mts_status param_norms(const mts_host* host, mts_root, mts_tensor_kind, double, double*, uint64_t) {
    return self(host).refuse(MTS_UNSUPPORTED, "param_norms is not offered by this version of the host");
  }
  static mts_status unscale_grads(const mts_host* host, mts_root, double, int32_t*) {
    return self(host).refuse(MTS_UNSUPPORTED, "unscale_grads is not offered by this version of the host");
  }

  static mts_status grad_norm(const mts_host* host, mts_root root, double norm_type, double* total_norm) {
    HostServices& services = self(host);
    if (const auto closed = services.gradients_closed(root, Slot::clip)) return *closed;
    if (total_norm == nullptr) return services.refuse(MTS_INVALID, "grad_norm: total_norm is NULL");
    return services.collective([&] { *total_norm = services.gradients_->norm(norm_type); });
  }

  static mts_status clip_grad_norm(const mts_host* host, mts_root root, double max_norm, double norm_type,
                                   double* total_norm) {
    HostServices& services = self(host);
    if (const auto closed = services.gradients_closed(root, Slot::clip)) return *closed;
    if (total_norm == nullptr) return services.refuse(MTS_INVALID, "clip_grad_norm: total_norm is NULL");
    return services.collective([&] { *total_norm = services.gradients_->clip_norm(max_norm, norm_type); });
  }

  static mts_status clip_grad_value(const mts_host* host, mts_root root, double limit) {
    HostServices& services = self(host);
    if (const auto closed = services.gradients_closed(root, Slot::clip)) return *closed;
    return services.local(&Gradients::clip_value, limit);
  }

  static mts_status scale_grads(const mts_host* host, mts_root root, double factor) {
    HostServices& services = self(host);
    if (const auto closed = services.gradients_closed(root, Slot::clip)) return *closed;
    return services.local(&Gradients::scale, factor);
  }

  static mts_status scale_each_grad(const mts_host* host, mts_root, const double*, uint64_t) {
    return self(host).refuse(MTS_UNSUPPORTED, "scale_each_grad is not offered by this version of the host");
  }

  static mts_host make(HostServices* services) {
    mts_host table{};
    table.header = MTS_HEADER(mts_host);
    table.self = services;
    table.log = log;
    table.fail = fail;
    table.extension = extension;
    table.option = option;
    table.metric = metric;
    table.put_state = put_state;
    table.put_fact = put_fact;
    table.get_fact = get_fact;
    table.root_info = root_info;
    table.param_info = param_info;
    table.all_reduce = all_reduce;
    table.span = span;
    table.param_norms = param_norms;
    table.unscale_grads = unscale_grads;
    table.grad_norm = grad_norm;
    table.clip_grad_norm = clip_grad_norm;
    table.clip_grad_value = clip_grad_value;
    table.scale_grads = scale_grads;
    table.scale_each_grad = scale_each_grad;
    return table;
  }
};

HostServices::HostServices(std::string plugin_id, const ModulePlan& plan, Exchange& exchange,
                           std::vector<CheckedOption> options)
    : plugin_id_(std::move(plugin_id)),
      exchange_(exchange),
      options_(std::move(options)),
      table_(ServiceTable::make(this)) {
  for (size_t index : plan.trainable) {
    const ParameterEntry& entry = plan.parameters[index];
    const auto numel = static_cast<uint64_t>(entry.tensor.numel());
    parameters_.push_back({entry.name, {entry.sizes.begin(), entry.sizes.end()}, numel, entry.replicated, 0, 0});
    num_elements_ += numel;
  }
}

void HostServices::attach(Root& root, Gradients& gradients) {
  gradients_ = &gradients;
  const ModulePlan& plan = root.plan();
  std::vector<size_t> view_of(plan.parameters.size());
  for (size_t i = 0; i < plan.trainable.size(); ++i) view_of[plan.trainable[i]] = i;
  for (const FlatParameter* flat : root.trainable()) {
    for (const Piece& piece : flat->pieces()) {
      ParameterView& view = parameters_[view_of[flat->members()[piece.parameter].parameter]];
      view.local_offset = static_cast<uint64_t>(piece.parameter_offset);
      view.local_elements = static_cast<uint64_t>(piece.numel);
    }
  }
}

void HostServices::enter(Slot slot) {
  slot_ = slot;
  sticky_ = MTS_OK;
  text_.clear();
}

mts_status HostServices::leave(mts_status returned) {
  slot_ = Slot::none;
  if (agreed_failure_) std::rethrow_exception(agreed_failure_);
  return returned != MTS_OK ? returned : sticky_;
}

mts_status HostServices::refuse(mts_status status, const std::string& why) {
  if (sticky_ == MTS_OK) {
    sticky_ = status;
    text_ = why;
  }
  return status;
}

std::optional<mts_status> HostServices::gradients_closed(mts_root root, Slot slot) {
  if (!is_mine(root)) return refuse(MTS_STALE, "gradient service: not the handle that create was given");
  if (slot_ != slot || gradients_ == nullptr)
    return refuse(MTS_ORDER, std::string("gradient service called in ") + name(slot_) + ", allowed in " + name(slot));
  return std::nullopt;
}

template <class Body>
mts_status HostServices::collective(Body body) {
  if (agreed_failure_) return MTS_COMM;
  if (sticky_ != MTS_OK) exchange_.remember_failure(slot_failure(plugin_id_, slot_, sticky_, text_));
  try {
    body();
    return MTS_OK;
  } catch (const UsageError& error) {  // before anything was sent
    return refuse(MTS_INVALID, error.what());
  } catch (const OrderError& error) {
    return refuse(MTS_ORDER, error.what());
  } catch (...) {
    agreed_failure_ = std::current_exception();
    return MTS_COMM;
  }
}

mts_status HostServices::local(void (Gradients::*service)(double), double argument) {
  try {
    (gradients_->*service)(argument);
    return MTS_OK;
  } catch (const UsageError& error) {
    return refuse(MTS_INVALID, error.what());
  } catch (const std::exception& error) {
    return refuse(MTS_INTERNAL, error.what());
  }
}

}  // namespace mantissa
