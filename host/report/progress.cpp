#include "report/progress.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "base/number_text.h"

namespace mantissa {
namespace {

constexpr size_t kLabelWidth = 12;

std::string right(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string labelled(std::string_view label, std::string_view text) {
  std::string line = "  " + std::string(label);
  line.resize(std::max(line.size() + 1, 2 + kLabelWidth), ' ');
  return line.append(text).append("\n");
}

// Text of several lines under one label.
std::string labelled_block(std::string_view label, std::string_view text) {
  std::string block;
  while (true) {
    const size_t end = text.find('\n');
    block += labelled(block.empty() ? label : "", text.substr(0, end));
    if (end == std::string_view::npos) return block;
    text.remove_prefix(end + 1);
  }
}

std::string ranks_text(const RunStarted& run) {
  const std::string ranks = std::to_string(run.world_size) + (run.world_size == 1 ? " rank" : " ranks");
  return ranks + (run.sharding == "none" ? ", not sharded" : ", sharded");
}

std::string model_text(const RunStarted& run) { return run.model + ", " + grouped(run.num_parameters) + " parameters"; }

// All digits of a scale that is a power of two up to 2^53, and seven of others.
std::string scale_text(double scale) {
  return scale >= 1 && scale < 0x1p53 && scale == std::floor(scale) ? grouped(static_cast<int64_t>(scale))
                                                                    : short_text(scale, 7);
}

std::string times_text(int64_t count) { return grouped(count) + (count == 1 ? " time" : " times"); }

std::string plugin_text(const PluginIdentity& plugin) { return plugin.id + " " + plugin.version; }

// One character of UTF-8 at the beginning of `text`: its bytes, or 0 if there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) < 0x80                      ? 1
                        : byte(0) >= 0xC2 && byte(0) < 0xE0 ? 2
                        : (byte(0) & 0xF0) == 0xE0          ? 3
                        : byte(0) >= 0xF0 && byte(0) < 0xF5 ? 4
                                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xF0 && byte(1) < 0x90);
  const bool out_of_range = (byte(0) == 0xED && byte(1) >= 0xA0) || (byte(0) == 0xF4 && byte(1) >= 0x90);
  return overlong || out_of_range ? 0 : length;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return (first < 0x20 && first != '\n') || first == 0x7F;
  return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;  // the C1 controls
}

// Of a row with an evaluation: bits per byte say something of a text only.
std::string heldout_text(const StepMetrics& metrics) {
  return metrics.val_bits_per_byte ? fixed_text(*metrics.val_bits_per_byte, 4) + " bits/byte"
                                   : fixed_text(metrics.val_loss.value_or(0), 4) + " nats";
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    shown += length == 0 || is_control(character) ? "?" : character;
    text.remove_prefix(character.size());
  }
  return shown;
}

void ProgressLines::started(const RunStarted& run) {
  run_ = run;
  out_ << "training " << run.name << " for " << grouped(run.steps) << (run.steps == 1 ? " step\n" : " steps\n")
       << labelled("model", model_text(run)) << labelled("data", run.data) << labelled("ranks", ranks_text(run))
       << labelled("plugin", plugin_text(run.plugin) + " (sha256 " + run.plugin.sha256.substr(0, 12) + ")")
       << labelled("clip", run.clip) << labelled("run folder", run.folder.string()) << std::endl;
}

// Counted from 1 for people: the number of steps that are done.
std::string ProgressLines::step_label(int64_t step) const {
  const std::string total = std::to_string(run_.steps);
  return "step " + right(std::to_string(step + 1), total.size()) + "/" + total;
}

void ProgressLines::stepped(const StepMetrics& metrics) {
  if (metrics.step == skipped_step_) return;  // said already; metrics.jsonl has the row
  const double seconds_left = static_cast<double>(run_.steps - metrics.step - 1) * metrics.step_ms / 1000;
  out_ << step_label(metrics.step) << "  loss " << right(fixed_text(metrics.loss, 4), 7) << "  grad_norm "
       << right(short_text(metrics.grad_norm, 4), 9) << " -> " << right(short_text(metrics.grad_norm_clipped, 4), 9)
       << "  lr " << right(short_text(metrics.lr, 3), 8) << "  " << right(grouped(metrics.tokens_per_s), 9) << " "
       << run_.token_word << "s/s  " << right(duration_text(seconds_left), 11) << " left";
  if (metrics.val_loss) out_ << "  held-out " << heldout_text(metrics);
  out_ << std::endl;
}

void ProgressLines::evaluated(const StepMetrics& metrics) {
  out_ << step_label(metrics.step) << "  held-out " << heldout_text(metrics) << "  loss "
       << right(fixed_text(metrics.loss, 4), 7) << std::endl;
}

void ProgressLines::skipped(const StepSkipped& skip) {
  skipped_step_ = skip.step;
  out_ << step_label(skip.step) << "  skipped: " << skip.reason << " (grad_norm " << short_text(skip.grad_norm, 4)
       << ", loss_scale " << scale_text(skip.loss_scale);
  if (skip.loss_scale_after && *skip.loss_scale_after != skip.loss_scale)
    out_ << " -> " << scale_text(*skip.loss_scale_after);
  out_ << ")" << std::endl;
}

void ProgressLines::finished(const RunFinished& result) {
  print_how_it_ended(result);
  out_ << labelled("model", model_text(run_)) << labelled("ranks", ranks_text(run_))
       << labelled("plugin", plugin_text(run_.plugin)) << labelled("", "sha256 " + run_.plugin.sha256);
  print_results(result);
  print_next_steps(result);
}

void ProgressLines::print_how_it_ended(const RunFinished& result) {
  out_ << '\n';
  if (result.stopped_by.empty()) {
    out_ << "done: " << run_.name << ", " << grouped(result.steps) << " steps in ";
  } else {
    out_ << "stopped by " << result.stopped_by << ": " << run_.name << ", after " << grouped(result.steps) << " of "
         << grouped(run_.steps) << " steps in ";
  }
  out_ << duration_text(result.seconds);
  if (result.skipped > 0) out_ << ", " << grouped(result.skipped) << " of them skipped";
  out_ << '\n';
}

void ProgressLines::print_results(const RunFinished& result) {
  if (result.steps > 0) out_ << labelled("train loss", fixed_text(result.train_loss, 4) + " nats, last step");
  if (result.val_bits_per_byte) {
    const std::string nats = result.val_loss ? " (" + fixed_text(*result.val_loss, 4) + " nats)" : "";
    out_ << labelled("held-out", fixed_text(*result.val_bits_per_byte, 4) + " bits per byte" + nats);
  } else if (result.val_loss) {
    out_ << labelled("held-out", fixed_text(*result.val_loss, 4) + " nats");
  }
  if (result.loss_scale) {
    out_ << labelled("loss scale", scale_text(*result.loss_scale) + " at the last step, raised " +
                                       times_text(result.scale_raised) + ", lowered " +
                                       times_text(result.scale_lowered));
  }
  out_ << labelled("speed", grouped(result.tokens_per_s) + " " + run_.token_word + "s/s")
       << labelled("memory", grouped(result.memory_mb) + " MB at most in a rank")
       << labelled("run folder", run_.folder.string());
  if (!result.weights.empty()) out_ << labelled("weights", result.weights.string());
  if (result.sample) out_ << labelled_block("text", printable(*result.sample));
}

// Only commands that can be pasted as they are.
void ProgressLines::print_next_steps(const RunFinished& result) {
  const std::string config = (run_.folder / "config.toml").string();
  const std::string ranks = run_.world_size > 1 ? " --ranks " + std::to_string(run_.world_size) : "";
  const std::string other = result.stopped_by.empty() ? " --set run.seed=1" : "";
  out_ << "next\n"
       << labelled("settings", "mantissa config show " + config)
       << labelled("plugin", "mantissa plugin info " + run_.plugin_name)
       << labelled("run again", "mantissa train " + config + ranks + other) << std::flush;
}

}  // namespace mantissa
