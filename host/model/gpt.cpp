#include "model/gpt.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "mantissa/unit.h"
#include "model/attention.h"

namespace mantissa {
namespace {

namespace nn = torch::nn;

struct BlockImpl : nn::Module {
  BlockImpl(int64_t width, int64_t num_heads) : heads(num_heads) {
    ln_1 = register_module("ln_1", nn::LayerNorm(nn::LayerNormOptions({width})));
    attn_qkv = register_module("attn_qkv", nn::Linear(width, 3 * width));
    attn_out = register_module("attn_out", nn::Linear(width, width));
    ln_2 = register_module("ln_2", nn::LayerNorm(nn::LayerNormOptions({width})));
    mlp_in = register_module("mlp_in", nn::Linear(width, 4 * width));
    mlp_out = register_module("mlp_out", nn::Linear(4 * width, width));
  }

  // [rows, context, width] -> the same
  at::Tensor forward(at::Tensor x) {
    x = x + attn_out(attention(attn_qkv(ln_1(x))));
    return x + mlp_out(at::gelu(mlp_in(ln_2(x))));
  }

  // [rows, context, 3 * width] -> [rows, context, width]
  at::Tensor attention(const at::Tensor& qkv) const {
    const int64_t rows = qkv.size(0), context = qkv.size(1), width = qkv.size(2) / 3;
    const auto parts = qkv.split(width, 2);
    const auto by_head = [&](const at::Tensor& t) {
      return t.view({rows, context, heads, width / heads}).transpose(1, 2);
    };
    const at::Tensor y = causal_attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]));
    return y.transpose(1, 2).reshape({rows, context, width});
  }

  int64_t heads;
  nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  nn::Linear attn_qkv{nullptr}, attn_out{nullptr}, mlp_in{nullptr}, mlp_out{nullptr};
};
TORCH_MODULE(Block);

struct GptImpl : nn::Module {
  explicit GptImpl(const ModelConfig& config) {
    tok = register_module("tok", nn::Embedding(256, config.width));
    pos = register_module("pos", nn::Embedding(config.context, config.width));
    nn::ModuleList list = register_module("blocks", nn::ModuleList());
    for (int64_t i = 0; i < config.layers; ++i) {
      blocks.emplace_back(config.width, config.heads);
      list->push_back(blocks.back());
    }
    ln_f = register_module("ln_f", nn::LayerNorm(nn::LayerNormOptions({config.width})));
    head = register_module("head", nn::Linear(nn::LinearOptions(config.width, 256).bias(false)));
  }

  // [rows, context] -> [rows, context, 256]
  at::Tensor forward(at::Tensor index) {
    at::Tensor x = tok(index) + pos(at::arange(index.size(1), index.options()));
    for (auto& block : blocks) x = block(x);
    return head(ln_f(x));
  }

  nn::Embedding tok{nullptr}, pos{nullptr};
  std::vector<Unit<Block>> blocks;
  nn::LayerNorm ln_f{nullptr};
  nn::Linear head{nullptr};
};

class Gpt final : public Model {
 public:
  explicit Gpt(const ModelConfig& config) : config_(config), module_(std::make_shared<GptImpl>(config)) {}
  std::shared_ptr<nn::Module> module() override { return module_; }
  at::Tensor logits(const at::Tensor& inputs) override { return module_->forward(inputs); }
  std::string describe() const override {
    return "gpt, " + std::to_string(config_.layers) + " layers, width " + std::to_string(config_.width) + ", " +
           std::to_string(config_.heads) + " heads, context " + std::to_string(config_.context);
  }

 private:
  ModelConfig config_;
  std::shared_ptr<GptImpl> module_;
};

}  // namespace

std::unique_ptr<Model> make_gpt(const ModelConfig& config) { return std::make_unique<Gpt>(config); }

}  // namespace mantissa
