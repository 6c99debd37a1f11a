// amp - automatic mixed precision: matrix products in bfloat16 or float16, everything that needs range or digits in
// float32, parameters and optimizer in float32. With float16 the loss is scaled, so that small gradients are not lost;
// a step whose gradients overflow is skipped, and the scale adapts.
#include <cstdio>
#include <cstring>
#include <string>

#include <mantissa/precision.hpp>

#include "loss_scaler.h"

namespace {

constexpr double kLargestFloat = 3.4028234663852886e38, kSmallestFloat = 1.1754943508222875e-38;  // normal ones

constexpr mts_option_spec kOptions[] = {
    mts::string_spec("dtype", "\"bfloat16\"", "bfloat16|float16",
                     "number format of matrix products; float16 turns loss scaling on"),
    mts::string_spec("reduce_dtype", "\"float32\"", "float32|bfloat16", "number format of gradients on the wire"),
    mts::float_spec("init_scale", "65536.0", kSmallestFloat, kLargestFloat,
                    "float16: what the loss is multiplied by at first"),
    mts::float_spec("growth_factor", "2.0", 1, kLargestFloat,
                    "float16: what the scale is multiplied by when it grows; 1: it never does"),
    mts::float_spec("backoff_factor", "0.5", kSmallestFloat, 1,
                    "float16: what the scale is multiplied by after an overflow"),
    mts::int_spec("growth_interval", "2000", 1, 1e15,
                  "float16: steps in a row without an overflow before the scale grows"),
    mts::float_spec("min_scale", "1.0", kSmallestFloat, kLargestFloat, "float16: the scale never falls below it"),
};

// State as it is kept: little-endian, as all machines that the host runs on are.
struct SavedState {
  double scale;
  int64_t tracker, skipped;
};

class Amp final : public mts::Precision {
 public:
  Amp(const mts_host* host, mts_root root) : mts::Precision(host, root), scaler_(scaler_options()) {}

  void plan(mts_plan& plan) override {
    plan.storage_dtype = plan.param_dtype = MTS_F32;
    plan.reduce_dtype = string_option("reduce_dtype") == "bfloat16" ? MTS_BF16 : MTS_F32;
    plan.autocast_dtype = scales() ? MTS_F16 : MTS_BF16;
    plan.scales_loss = scales() ? 1 : 0;
  }

  // Unscaling, clipping and deciding are left to the host: gradients are unscaled before they are clipped, and a step
  // with found_inf is skipped on every rank.
  double loss_scale(const mts_step&) override { return scaler_.scale(); }

  void update(const mts_step& step) override {
    if (!scales()) return;
    scaler_.update(step.found_inf != 0);
    metric("growth_tracker", static_cast<double>(scaler_.state().tracker));
  }

  void save_state() override {
    const LossScaler::State& state = scaler_.state();
    const SavedState saved{state.scale, state.tracker, state.skipped};
    put_state(&saved, sizeof saved);
  }

  void load_state(const void* data, uint64_t size, const char*) override {
    SavedState saved{};
    if (data == nullptr || size != sizeof saved) {
      throw mts::Failure(MTS_INVALID,
                         "state has " + std::to_string(size) + " bytes, need " + std::to_string(sizeof saved));
    }
    std::memcpy(&saved, data, sizeof saved);
    restore({saved.scale, saved.tracker, saved.skipped});
  }

  void hand_over() override {
    if (!scales()) return;
    put_fact("loss_scale", scaler_.scale());
    put_fact("growth_tracker", static_cast<double>(scaler_.state().tracker));
    put_fact("skipped_total", static_cast<double>(scaler_.state().skipped));
  }

  void take_over() override {
    LossScaler::State state = scaler_.state();
    double tracker = 0, skipped = 0;
    get_fact("loss_scale", state.scale);
    if (get_fact("growth_tracker", tracker)) state.tracker = whole(tracker);
    if (get_fact("skipped_total", skipped)) state.skipped = whole(skipped);
    restore(state);
  }

 private:
  bool scales() const { return string_option("dtype") == "float16"; }

  static int64_t whole(double count) {
    if (count >= 0 && count <= 1e15) return static_cast<int64_t>(count);
    throw mts::Failure(MTS_INVALID, "a count that was handed over is no whole number >= 0");
  }

  LossScalerOptions scaler_options() const {
    LossScalerOptions options;
    options.init_scale = float_option("init_scale");
    options.growth_factor = float_option("growth_factor");
    options.backoff_factor = float_option("backoff_factor");
    options.growth_interval = int_option("growth_interval");
    options.min_scale = float_option("min_scale");
    if (options.min_scale > options.init_scale) {
      char text[96];
      std::snprintf(text, sizeof text, "min_scale is %g, need at most init_scale = %g; set both", options.min_scale,
                    options.init_scale);
      throw mts::Failure(MTS_INVALID, text);
    }
    return options;
  }

  void restore(const LossScaler::State& state) {
    if (!scaler_.restore(state)) throw mts::Failure(MTS_INVALID, "state holds a loss scale or a count that cannot be");
  }

  LossScaler scaler_;
};

}  // namespace

MTS_EXPORT_PRECISION(Amp, "amp", "1.0.0", "Mantissa", "autocast to bfloat16 or float16, with dynamic loss scaling",
                     mts::clips(MTS_CLIP_NORM, MTS_CLIP_VALUE), kOptions);
