// mantissa/precision.hpp - C++ comfort on top of precision.h, for plugins in C++11 and newer. Header only.
//
// Derive from mts::Precision, override plan() and the slots that you want to decide, and export the class once:
//
//   class Half : public mts::Precision {
//    public:
//     using Precision::Precision;
//     void plan(mts_plan& plan) override { plan.reduce_dtype = MTS_BF16; }
//     double clip(const mts_step&, const mts_clip& clip) override {
//       return clip_grad_norm(clip.limit / 2, clip.norm_type);
//     }
//   };
//   MTS_EXPORT_PRECISION(Half, "half", "1.0.0", "me", "clips at half the limit",
//                        mts::clips(MTS_CLIP_NORM), mts::NoOptions());
//
// A slot that the class does not override stays NULL in the table, so the host does what precision.h says for it.
// No exception leaves a plugin: every slot runs within mts::guard, which turns one into a status and its text.
#ifndef MANTISSA_PRECISION_HPP
#define MANTISSA_PRECISION_HPP

#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "precision.h"

namespace mts {

/// Throw it from any slot: the slot fails with `status`, and the user reads `text`. Without a text, what the host
/// knows.
class Failure : public std::exception {
 public:
  explicit Failure(mts_status status, std::string text = std::string()) : status_(status), text_(std::move(text)) {}
  mts_status status() const noexcept { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  mts_status status_;
  std::string text_;
};

/// Throws Failure unless a service of the host succeeded; the host has kept the reason.
inline void check(mts_status status) {
  if (status != MTS_OK) throw Failure(status);
}

/// A struct for the host to fill, its header set.
template <class T>
T blank() {
  T object = T();
  object.header = MTS_HEADER(T);
  return object;
}

/// Base of a plugin's context: the host's services as member functions that throw Failure, and the slots to override.
/// Every call obeys precision.h: which slot may use a service, and what is [collective].
class Precision {
 public:
  Precision(const mts_host* host, mts_root root) : host_(host), root_(root) {}
  virtual ~Precision() {}
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;

  // The slots. Those not overridden are never called.
  virtual void plan(mts_plan& plan) = 0;
  virtual double loss_scale(const mts_step&) { throw not_offered(); }
  virtual bool unscale(const mts_step&) { throw not_offered(); }                  ///< returns found_inf
  virtual double clip(const mts_step&, const mts_clip&) { throw not_offered(); }  ///< returns the norm before clipping
  virtual mts_decision decide(const mts_step&, mts_decision) { throw not_offered(); }  ///< gets the host's decision
  virtual void update(const mts_step&) { throw not_offered(); }
  virtual void save_state() { throw not_offered(); }  ///< by put_state
  virtual void load_state(const void*, uint64_t, const char* /*version*/) { throw not_offered(); }
  virtual void hand_over() { throw not_offered(); }  ///< by put_fact
  virtual void take_over() { throw not_offered(); }  ///< by get_fact
  virtual const void* extension(const char* /*id*/) { throw not_offered(); }

 protected:
  const mts_host* host() const { return host_; }
  mts_root root() const { return root_; }

  // Throw Failure if the option is not declared, or is declared with another type.
  bool bool_option(const char* key) const { return option(key, MTS_OPTION_BOOL).boolean != 0; }
  int64_t int_option(const char* key) const { return option(key, MTS_OPTION_INT).integer; }
  double float_option(const char* key) const { return option(key, MTS_OPTION_FLOAT).real; }
  std::string string_option(const char* key) const { return text(option(key, MTS_OPTION_STRING).string); }

  void log(mts_log_level level, const std::string& message) const { host_->log(host_, level, message.c_str()); }
  void metric(const char* key, double value) const { host_->metric(host_, key, value); }
  /// Why decide() returns MTS_ABORT.
  void say_why(const std::string& message) const { host_->fail(host_, MTS_OK, message.c_str()); }

  mts_root_info root_info() const {
    mts_root_info info = blank<mts_root_info>();
    check(host_->root_info(host_, root_, &info));
    return info;
  }
  mts_param_info param_info(uint64_t param) const {
    mts_param_info info = blank<mts_param_info>();
    check(host_->param_info(host_, root_, param, &info));
    return info;
  }
  mts_span span(uint64_t param, mts_tensor_kind kind, mts_access access) const {
    mts_span piece = blank<mts_span>();
    check(host_->span(host_, root_, param, kind, access, &piece));
    return piece;
  }
  void all_reduce(std::vector<double>& values, mts_reduce_op op) const {
    check(host_->all_reduce(host_, root_, values.data(), values.size(), op));
  }
  std::vector<double> param_norms(mts_tensor_kind kind, double norm_type) const {
    std::vector<double> norms(root_info().num_params);
    check(host_->param_norms(host_, root_, kind, norm_type, norms.data(), norms.size()));
    return norms;
  }

  bool unscale_grads(double loss_scale) const {
    int32_t found_inf = 0;
    check(host_->unscale_grads(host_, root_, loss_scale, &found_inf));
    return found_inf != 0;
  }
  double grad_norm(double norm_type) const {
    double total_norm = 0;
    check(host_->grad_norm(host_, root_, norm_type, &total_norm));
    return total_norm;
  }
  double clip_grad_norm(double max_norm, double norm_type) const {
    double total_norm = 0;
    check(host_->clip_grad_norm(host_, root_, max_norm, norm_type, &total_norm));
    return total_norm;
  }
  void clip_grad_value(double limit) const { check(host_->clip_grad_value(host_, root_, limit)); }
  void scale_grads(double factor) const { check(host_->scale_grads(host_, root_, factor)); }
  void scale_each_grad(const std::vector<double>& factors) const {
    check(host_->scale_each_grad(host_, root_, factors.data(), factors.size()));
  }

  void put_state(const void* data, uint64_t size) const { check(host_->put_state(host_, data, size)); }
  void put_fact(const char* key, double value) const { check(host_->put_fact(host_, key, value)); }
  /// False, and `value` as it was, where the plugin before left no such fact.
  bool get_fact(const char* key, double& value) const {
    const mts_status status = host_->get_fact(host_, key, &value);
    if (status != MTS_ABSENT) check(status);
    return status == MTS_OK;
  }

 private:
  template <class Plugin>
  friend struct Slots;

  static std::string text(const char* string) { return string == nullptr ? std::string() : std::string(string); }
  static Failure not_offered() { return Failure(MTS_UNSUPPORTED, "slot is not offered"); }
  mts_option option(const char* key, mts_option_type type) const {
    mts_option value = blank<mts_option>();
    const mts_status status = host_->option(host_, key, &value);
    if (status == MTS_ABSENT) throw Failure(status, std::string("option ") + key + " is not declared by this plugin");
    if (status != MTS_OK) throw Failure(status, std::string("option ") + key + " cannot be read");
    if (value.type != type)
      throw Failure(MTS_INTERNAL, std::string("option ") + key + " is read as another type than declared");
    return value;
  }

  const mts_host* host_;
  mts_root root_;
};

/// Runs the body of a slot; the one place where exceptions end.
template <class Body>
mts_status guard(const mts_host* host, Body body) noexcept {
  try {
    body();
    return MTS_OK;
  } catch (const Failure& failure) {
    if (failure.what()[0] == '\0') return failure.status();
    return host->fail(host, failure.status(), failure.what());
  } catch (const std::bad_alloc&) {
    return host->fail(host, MTS_NO_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return host->fail(host, MTS_INTERNAL, error.what());
  } catch (...) {
    return host->fail(host, MTS_INTERNAL, "an exception that is no std::exception");
  }
}

/// The C functions of a table for one plugin class. A context is a pointer to its Precision.
template <class Plugin>
struct Slots {
  static Plugin* self(mts_context* context) { return static_cast<Plugin*>(reinterpret_cast<Precision*>(context)); }
  template <class Body>
  static mts_status run(mts_context* context, Body body) noexcept {
    Plugin* const plugin = self(context);
    return guard(static_cast<Precision*>(plugin)->host_, [&] { body(*plugin); });
  }

  static mts_status create(const mts_host* host, mts_root root, mts_context** out) noexcept {
    return guard(host, [&] {
      Precision* const plugin = new Plugin(host, root);
      *out = reinterpret_cast<mts_context*>(plugin);
    });
  }
  static void destroy(mts_context* context) noexcept { delete reinterpret_cast<Precision*>(context); }
  static mts_status plan(mts_context* context, mts_plan* inout) noexcept {
    return run(context, [&](Plugin& plugin) { plugin.plan(*inout); });
  }
  static mts_status loss_scale(mts_context* context, const mts_step* step, double* scale) noexcept {
    return run(context, [&](Plugin& plugin) { *scale = plugin.loss_scale(*step); });
  }
  static mts_status unscale(mts_context* context, const mts_step* step, int32_t* found_inf) noexcept {
    return run(context, [&](Plugin& plugin) { *found_inf = plugin.unscale(*step) ? 1 : 0; });
  }
  static mts_status clip(mts_context* context, const mts_step* step, const mts_clip* limits,
                         double* total_norm) noexcept {
    return run(context, [&](Plugin& plugin) { *total_norm = plugin.clip(*step, *limits); });
  }
  static mts_status decide(mts_context* context, const mts_step* step, mts_decision* decision) noexcept {
    return run(context, [&](Plugin& plugin) { *decision = plugin.decide(*step, *decision); });
  }
  static mts_status update(mts_context* context, const mts_step* step) noexcept {
    return run(context, [&](Plugin& plugin) { plugin.update(*step); });
  }
  static mts_status save_state(mts_context* context) noexcept {
    return run(context, [](Plugin& plugin) { plugin.save_state(); });
  }
  static mts_status load_state(mts_context* context, const void* data, uint64_t size, const char* version) noexcept {
    return run(context, [&](Plugin& plugin) { plugin.load_state(data, size, version == nullptr ? "" : version); });
  }
  static mts_status hand_over(mts_context* context) noexcept {
    return run(context, [](Plugin& plugin) { plugin.hand_over(); });
  }
  static mts_status take_over(mts_context* context) noexcept {
    return run(context, [](Plugin& plugin) { plugin.take_over(); });
  }
  static const void* extension(mts_context* context, const char* id) noexcept {
    const void* table = nullptr;
    run(context, [&](Plugin& plugin) { table = plugin.extension(id); });
    return table;
  }
};

/// Bits for clip_kinds: mts::clips(MTS_CLIP_NORM, MTS_CLIP_VALUE). No clipping at all is always understood.
constexpr uint64_t clips() { return uint64_t(1) << MTS_CLIP_NONE; }
template <class... Kinds>
constexpr uint64_t clips(mts_clip_kind kind, Kinds... others) {
  return uint64_t(1) << kind | clips(others...);
}

// Options, as elements of a static array of mts_option_spec. A default is written in TOML: "true", "16", "1e-3",
// "\"text\"".
constexpr mts_option_spec bool_spec(const char* key, const char* default_value, const char* help) {
  return mts_option_spec{key, MTS_OPTION_BOOL, 0, default_value, 0, 0, nullptr, help};
}
constexpr mts_option_spec int_spec(const char* key, const char* default_value, double minimum, double maximum,
                                   const char* help) {
  return mts_option_spec{key, MTS_OPTION_INT, 0, default_value, minimum, maximum, nullptr, help};
}
constexpr mts_option_spec float_spec(const char* key, const char* default_value, double minimum, double maximum,
                                     const char* help) {
  return mts_option_spec{key, MTS_OPTION_FLOAT, 0, default_value, minimum, maximum, nullptr, help};
}
constexpr mts_option_spec string_spec(const char* key, const char* default_value, const char* choices,
                                      const char* help) {
  return mts_option_spec{key, MTS_OPTION_STRING, 0, default_value, 0, 0, choices, help};
}
constexpr double kUnbounded = std::numeric_limits<double>::infinity();

/// In place of the array, for a plugin without options.
struct NoOptions {};

struct About {
  const char *id, *version, *vendor, *summary;
};

// A member pointer still of type `Slot Precision::*` was inherited: the class does not override it.
#define MTS_OVERRIDES(Plugin, slot) (!std::is_same<decltype(&Plugin::slot), decltype(&::mts::Precision::slot)>::value)

template <class Plugin>
mts_precision make_table(const About& about, uint64_t clip_kinds, NoOptions) {
  static_assert(std::is_base_of<Precision, Plugin>::value, "a plugin derives from mts::Precision");
  using S = Slots<Plugin>;
  mts_precision table = blank<mts_precision>();
  table.id = about.id;
  table.version = about.version;
  table.vendor = about.vendor;
  table.summary = about.summary;
  table.option_size = sizeof(mts_option_spec);
  table.clip_kinds = clip_kinds;
  table.create = &S::create;
  table.destroy = &S::destroy;
  table.plan = &S::plan;
  if (MTS_OVERRIDES(Plugin, loss_scale)) table.loss_scale = &S::loss_scale;
  if (MTS_OVERRIDES(Plugin, unscale)) table.unscale = &S::unscale;
  if (MTS_OVERRIDES(Plugin, clip)) table.clip = &S::clip;
  if (MTS_OVERRIDES(Plugin, decide)) table.decide = &S::decide;
  if (MTS_OVERRIDES(Plugin, update)) table.update = &S::update;
  if (MTS_OVERRIDES(Plugin, save_state)) table.save_state = &S::save_state;
  if (MTS_OVERRIDES(Plugin, load_state)) table.load_state = &S::load_state;
  if (MTS_OVERRIDES(Plugin, hand_over)) table.hand_over = &S::hand_over;
  if (MTS_OVERRIDES(Plugin, take_over)) table.take_over = &S::take_over;
  if (MTS_OVERRIDES(Plugin, extension)) table.extension = &S::extension;
  return table;
}

#undef MTS_OVERRIDES

/// `options` must live as long as the library.
template <class Plugin, std::size_t N>
mts_precision make_table(const About& about, uint64_t clip_kinds, const mts_option_spec (&options)[N]) {
  mts_precision table = make_table<Plugin>(about, clip_kinds, NoOptions());
  table.options = options;
  table.num_options = N;
  return table;
}

}  // namespace mts

/// Once, at file scope: the note and the exported entry of `Plugin`. `id` is a literal, [a-z0-9_]; `clip_kinds` is made
/// by mts::clips; `options` is an array of mts_option_spec with static storage, or mts::NoOptions().
#define MTS_EXPORT_PRECISION(Plugin, id, version, vendor, summary, clip_kinds, options)             \
  MTS_PRECISION_NOTE(id);                                                                           \
  extern "C" const mts_precision* mts_precision_entry_v1(void) {                                    \
    static const mts_precision table =                                                              \
        ::mts::make_table<Plugin>(::mts::About{id, version, vendor, summary}, clip_kinds, options); \
    return &table;                                                                                  \
  }                                                                                                 \
  static_assert(true, "end with a semicolon")

#endif
