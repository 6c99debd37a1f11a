#include "train/generate.h"

#include <algorithm>
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include "data/sampler.h"

namespace mantissa {
namespace {

// Draws an index with probability softmax(logits / temperature); `uniform` is in [0, 1).
uint8_t draw(std::span<const float> logits, double temperature, double uniform) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  double total = 0;
  for (float logit : logits) {
    weights.push_back(std::exp((logit - largest) / temperature));
    total += weights.back();
  }
  double rest = uniform * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    rest -= weights[i];
    if (rest < 0) return static_cast<uint8_t>(i);
  }
  return static_cast<uint8_t>(weights.size() - 1);
}

double uniform(uint64_t seed, uint64_t position) {
  return static_cast<double>(splitmix64(splitmix64(seed) + position) >> 11) * 0x1.0p-53;
}

}  // namespace

std::string generate_text(const Forward& forward, const SampleConfig& sample, int64_t context) {
  const at::NoGradGuard no_grad;
  std::string text = sample.prompt.empty() ? "\n" : sample.prompt;
  for (int64_t i = 0; i < sample.length; ++i) {
    const size_t seen = std::min(text.size(), static_cast<size_t>(context));
    std::vector<int64_t> window;
    for (size_t k = text.size() - seen; k < text.size(); ++k) window.push_back(static_cast<uint8_t>(text[k]));
    const at::Tensor input = at::from_blob(window.data(), {1, static_cast<int64_t>(seen)}, at::kLong);
    const at::Tensor last = forward(input)[0][static_cast<int64_t>(seen) - 1].to(at::kFloat).contiguous();
    const std::span<const float> logits(last.const_data_ptr<float>(), static_cast<size_t>(last.numel()));
    text.push_back(static_cast<char>(draw(logits, sample.temperature, uniform(sample.seed, static_cast<uint64_t>(i)))));
  }
  return text;
}

}  // namespace mantissa
