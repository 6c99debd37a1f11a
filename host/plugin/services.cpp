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

constexpr int32_t kCpu = 1;  // DLPack's device type

mts_dtype dtype_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return MTS_F64;
    case at::kHalf: return MTS_F16;
    case at::kBFloat16: return MTS_BF16;
    default: return MTS_F32;
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

  static void metric(const mts_host* host, const char* key, double value) {
    HostServices& services = self(host);
    const std::string text = text_of(key);
    const bool legal = !text.empty() && text.size() <= 64 &&
                       text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") == std::string::npos;
    if (legal) {
      services.metrics_[services.plugin_id_ + "." + text] = value;
    } else {
      const std::string who = "plugin " + services.plugin_id_ + ": metric \"" + text + "\"";
      log::warning_about(who, who + " is left out: need 1 to 64 characters of a to z, 0 to 9, _ and .");
    }
  }
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
    filled.device_type = kCpu;
    fill(out, filled);
    return MTS_OK;
  }

  static mts_status param_info(const mts_host* host, mts_root root, uint64_t param, mts_param_info* out) {
    HostServices& services = self(host);
    if (!services.is_mine(root)) return services.refuse(MTS_STALE, "param_info: not the handle that create was given");
    if (param >= services.parameters_.size())
      return services.refuse(MTS_INVALID, services.no_parameter("param_info", param));
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

  // In clip: gradients, and parameters to read. In update: parameters.
  static mts_status span(const mts_host* host, mts_root root, uint64_t param, mts_tensor_kind kind, mts_access access,
                         mts_span* out) {
    HostServices& services = self(host);
    if (const auto closed = services.tensors_closed("span", root, kind, access)) return *closed;
    if (param >= services.parameters_.size()) return services.refuse(MTS_INVALID, services.no_parameter("span", param));
    if (out == nullptr || !MTS_KNOWS(mts_span, out, stream))
      return services.refuse(MTS_INVALID, "span: set the struct's header by MTS_HEADER first");
    return services.local([&] {
      const at::Tensor piece =
          kind == MTS_GRAD ? services.gradients_->piece(param) : parameter_piece(*services.sharded_, param);
      if (kind == MTS_GRAD && access == MTS_WRITE) services.gradients_->written();
      mts_span filled{};
      filled.num_elements = static_cast<uint64_t>(piece.numel());
      filled.data = piece.numel() == 0 ? nullptr : piece.data_ptr();
      filled.dtype = dtype_of(piece.scalar_type());
      filled.access = access;
      filled.device_type = kCpu;
      fill(out, filled);
    });
  }

  static mts_status param_norms(const mts_host* host, mts_root root, mts_tensor_kind kind, double norm_type,
                                double* norms, uint64_t num_params) {
    HostServices& services = self(host);
    if (const auto closed = services.tensors_closed("param_norms", root, kind, MTS_READ)) return *closed;
    if (num_params != services.parameters_.size()) {
      return services.refuse(MTS_INVALID, "param_norms: num_params is " + std::to_string(num_params) + ", need " +
                                              std::to_string(services.parameters_.size()));
    }
    if (norms == nullptr) return services.refuse(MTS_INVALID, "param_norms: norms is NULL");
    return services.collective([&] {
      const std::vector<double> all =
          kind == MTS_GRAD ? services.gradients_->norms(norm_type) : parameter_norms(*services.sharded_, norm_type);
      std::copy(all.begin(), all.end(), norms);
    });
  }

  static mts_status unscale_grads(const mts_host* host, mts_root root, double loss_scale, int32_t* found_inf) {
    HostServices& services = self(host);
    if (const auto closed = services.gradients_closed(root, Slot::unscale)) return *closed;
    if (found_inf == nullptr) return services.refuse(MTS_INVALID, "unscale_grads: found_inf is NULL");
    return services.collective([&] { *found_inf = services.gradients_->unscale(loss_scale) ? 1 : 0; });
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
    return services.local([&] { services.gradients_->clip_value(limit); });
  }

  static mts_status scale_grads(const mts_host* host, mts_root root, double factor) {
    HostServices& services = self(host);
    if (const auto closed = services.gradients_closed(root, Slot::clip)) return *closed;
    return services.local([&] { services.gradients_->scale(factor); });
  }

  static mts_status scale_each_grad(const mts_host* host, mts_root root, const double* factors, uint64_t num_params) {
    HostServices& services = self(host);
    if (const auto closed = services.gradients_closed(root, Slot::clip)) return *closed;
    if (factors == nullptr) return services.refuse(MTS_INVALID, "scale_each_grad: factors is NULL");
    return services.local([&] { services.gradients_->scale_each({factors, static_cast<size_t>(num_params)}); });
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
  sharded_ = &root;
  gradients_ = &gradients;
  const std::vector<TrainablePiece>& pieces = root.trainable_pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    parameters_[i].local_offset = static_cast<uint64_t>(pieces[i].parameter_offset);
    parameters_[i].local_elements = static_cast<uint64_t>(pieces[i].numel);
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

std::optional<mts_status> HostServices::tensors_closed(const std::string& service, mts_root root, mts_tensor_kind kind,
                                                       mts_access access) {
  if (!is_mine(root)) return refuse(MTS_STALE, service + ": not the handle that create was given");
  if (kind != MTS_GRAD && kind != MTS_PARAM)
    return refuse(MTS_UNSUPPORTED, service + ": unknown kind " + std::to_string(kind));
  if (access != MTS_READ && access != MTS_WRITE)
    return refuse(MTS_UNSUPPORTED, service + ": unknown access " + std::to_string(access));
  const bool open =
      (slot_ == Slot::clip && (kind == MTS_GRAD || access == MTS_READ)) || (slot_ == Slot::update && kind == MTS_PARAM);
  if (open && sharded_ != nullptr) return std::nullopt;
  return refuse(MTS_ORDER, service +
                               (kind == MTS_GRAD     ? " of gradients"
                                : access == MTS_READ ? " of parameters"
                                                     : " of parameters to write") +
                               " called in " + name(slot_) + ", allowed in " +
                               (kind == MTS_GRAD     ? "clip"
                                : access == MTS_READ ? "clip and update"
                                                     : "update"));
}

std::string HostServices::no_parameter(const std::string& service, uint64_t param) const {
  return service + ": no parameter " + std::to_string(param) + ", there are " + std::to_string(parameters_.size());
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

template <class Body>
mts_status HostServices::local(Body body) {
  try {
    body();
    return MTS_OK;
  } catch (const UsageError& error) {
    return refuse(MTS_INVALID, error.what());
  } catch (const OrderError& error) {
    return refuse(MTS_ORDER, error.what());
  } catch (const std::bad_alloc&) {
    return refuse(MTS_NO_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return refuse(MTS_INTERNAL, error.what());
  }
}

}  // namespace mantissa
