#include "train/forward.h"

#include <ATen/autocast_mode.h>

namespace mantissa {
namespace {

// Its cache stays off: casts that it keeps would outlive a unit's gathered parameters.
class Autocast {
 public:
  explicit Autocast(at::ScalarType dtype) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, was_enabled_);
    at::autocast::set_autocast_dtype(at::kCPU, dtype_before_);
    at::autocast::set_autocast_cache_enabled(had_cache_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const bool was_enabled_ = at::autocast::is_autocast_enabled(at::kCPU);
  const at::ScalarType dtype_before_ = at::autocast::get_autocast_dtype(at::kCPU);
  const bool had_cache_ = at::autocast::is_autocast_cache_enabled();
};

}  // namespace

at::Tensor Forward::operator()(const at::Tensor& inputs) const {
  std::optional<Autocast> autocast;
  if (formats_.autocast_dtype != at::ScalarType::Undefined) autocast.emplace(formats_.autocast_dtype);
  const bool cast = inputs.is_floating_point() && formats_.input_dtype != at::ScalarType::Undefined;
  const at::Tensor x = cast ? inputs.to(formats_.input_dtype) : inputs;
  return detail::run_unit(root_.unit(0), [&](const at::Tensor& y) { return model_.logits(y); }, x);
}

}  // namespace mantissa
