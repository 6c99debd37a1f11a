#include "report/metrics_file.h"

#include "base/number_text.h"

namespace mantissa {
namespace {

// Keys are our own and need no escapes. Written by hand, as JSON libraries print doubles that read back, but not always
// the shortest.
class Row {
 public:
  Row& add(const char* key, int64_t value) { return raw(key, std::to_string(value)); }
  Row& add(const char* key, double value) { return raw(key, json_number(value)); }
  Row& add(const char* key, const std::optional<double>& value) { return value ? add(key, *value) : *this; }
  std::string text() const { return "{" + members_ + "}"; }

 private:
  Row& raw(const char* key, const std::string& value) {
    if (!members_.empty()) members_ += ", ";
    members_.append("\"").append(key).append("\": ").append(value);
    return *this;
  }
  std::string members_;
};

}  // namespace

std::string metrics_row(const StepMetrics& metrics) {
  Row row;
  row.add("step", metrics.step)
      .add("loss", metrics.loss)
      .add("grad_norm", metrics.grad_norm)
      .add("grad_norm_clipped", metrics.grad_norm_clipped)
      .add("clip_coef", metrics.clip_coef)
      .add("loss_scale", metrics.loss_scale)
      .add("skipped_total", metrics.skipped_total)
      .add("lr", metrics.lr)
      .add("tokens_per_s", metrics.tokens_per_s)
      .add("step_ms", metrics.step_ms)
      .add("forward_ms", metrics.forward_ms)
      .add("backward_ms", metrics.backward_ms)
      .add("comm_ms", metrics.comm_ms)
      .add("optimizer_ms", metrics.optimizer_ms)
      .add("memory_mb", metrics.memory_mb)
      .add("val_loss", metrics.val_loss)
      .add("val_bits_per_byte", metrics.val_bits_per_byte);
  for (const auto& [key, value] : metrics.more) row.add(key.c_str(), value);
  return row.text();
}

}  // namespace mantissa
