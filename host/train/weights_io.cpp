#include "train/weights_io.h"

#include <map>

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include "base/error.h"
#include "base/log.h"
#include "weights/safetensors.h"

namespace mantissa {
namespace {

std::string shape_text(at::IntArrayRef sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

std::map<std::string, at::Tensor> tensors_by_name(torch::nn::Module& module) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace(item.key(), item.value());
  return tensors;
}

}  // namespace

void load_weights(torch::nn::Module& module, const std::filesystem::path& path) {
  const at::NoGradGuard no_grad;
  const SafetensorsFile file(path);
  std::map<std::string, at::Tensor> wanted = tensors_by_name(module);
  std::string problems, converted;
  const auto problem = [&](const std::string& text) { problems += (problems.empty() ? "" : "; ") + text; };
  for (const SafetensorsEntry& entry : file.entries()) {
    const std::string& name = entry.name;
    const auto found = wanted.find(name);
    if (found == wanted.end()) {
      problem("\"" + name + "\" is no tensor of this model");
      continue;
    }
    const at::Tensor tensor = file.tensor(name);
    if (tensor.sizes() != found->second.sizes()) {
      problem("\"" + name + "\" is " + shape_text(tensor.sizes()) + ", need " + shape_text(found->second.sizes()));
    } else {
      if (tensor.scalar_type() != found->second.scalar_type()) converted = c10::toString(tensor.scalar_type());
      found->second.copy_(tensor);
    }
    wanted.erase(found);
  }
  for (const auto& [name, tensor] : wanted) problem("\"" + name + "\" " + shape_text(tensor.sizes()) + " is missing");
  if (!problems.empty()) throw CheckpointError(path.string() + " does not fit the model: " + problems);
  if (!converted.empty()) log::info(path.string() + " holds " + converted + " tensors; converted to the storage type");
}

void save_weights(Root& root, const std::filesystem::path& path) {
  std::vector<NamedTensor> tensors;
  const bool writes = root.transport().rank() == 0;
  root.visit_full([&](const ParameterEntry& entry, const at::Tensor& full) {
    if (!writes) return;
    tensors.push_back({entry.name, full});
    for (const std::string& alias : entry.aliases) tensors.push_back({alias, full});
  });
  root.exchange().agree_after(Operation::save, [&] {
    if (writes) write_safetensors(path, tensors, {{"format", "pt"}});
  });
}

}  // namespace mantissa
