#include "model/mlp.h"

#include <ATen/ops/gelu.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

#include "mantissa/unit.h"

namespace mantissa {
namespace {

namespace nn = torch::nn;

// A Linear that applies its activation, so that its parameters have the names of a Linear's.
struct HiddenLayerImpl : nn::LinearImpl {
  using nn::LinearImpl::LinearImpl;
  // [rows, in] -> [rows, out], in the type of the weights
  at::Tensor forward(at::Tensor x) { return at::gelu(nn::LinearImpl::forward(x.to(weight.scalar_type()))); }
};
TORCH_MODULE(HiddenLayer);

struct MlpImpl : nn::Module {
  MlpImpl(const ModelConfig& config, const DataConfig& data) {
    nn::ModuleList list = register_module("layers", nn::ModuleList());
    for (int64_t i = 0; i < config.layers; ++i) {
      layers.emplace_back(i == 0 ? data.inputs : config.width, config.width);
      list->push_back(layers.back());
    }
    head = register_module("head", nn::Linear(config.width, data.classes));
  }

  // [rows, inputs] -> [rows, classes]
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = layer(x);
    return head(x);
  }

  std::vector<Unit<HiddenLayer>> layers;
  nn::Linear head{nullptr};
};

class Mlp final : public Model {
 public:
  Mlp(const ModelConfig& config, const DataConfig& data)
      : module_(std::make_shared<MlpImpl>(config, data)),
        text_("mlp, " + std::to_string(data.inputs) + " inputs, " + std::to_string(config.layers) +
              (config.layers == 1 ? " hidden layer, width " : " hidden layers, width ") + std::to_string(config.width) +
              ", " + std::to_string(data.classes) + " classes") {}
  std::shared_ptr<nn::Module> module() override { return module_; }
  at::Tensor logits(const at::Tensor& inputs) override { return module_->forward(inputs); }
  std::string describe() const override { return text_; }

 private:
  std::shared_ptr<MlpImpl> module_;
  std::string text_;
};

}  // namespace

std::unique_ptr<Model> make_mlp(const ModelConfig& config, const DataConfig& data) {
  return std::make_unique<Mlp>(config, data);
}

}  // namespace mantissa
