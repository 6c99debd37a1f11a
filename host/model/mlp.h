// A classifier: hidden layers of Linear and GELU (exact), then a Linear head. Tensor names are those of a PyTorch
// state_dict: layers.N.{weight,bias}, head.{weight,bias}. In PyTorch:
//   layers = nn.ModuleList(nn.Linear(inputs if n == 0 else width, width) for n in range(config.layers))
//   head = nn.Linear(width, classes)
//   forward(x): for layer in layers: x = F.gelu(layer(x));  return head(x)
#pragma once
#include <memory>

#include "model/model.h"

namespace mantissa {

/// Uses layers and width of `config`, inputs and classes of `data`; each hidden layer is a unit. Weights are drawn as
/// PyTorch's modules draw theirs.
std::unique_ptr<Model> make_mlp(const ModelConfig& config, const DataConfig& data);

}  // namespace mantissa
