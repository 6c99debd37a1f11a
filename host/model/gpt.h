// A byte-level GPT: pre-norm blocks, learned positions, an untied head. Tensor names are those of a PyTorch state_dict:
// tok.weight, pos.weight, blocks.N.{ln_1,attn_qkv,attn_out,ln_2,mlp_in,mlp_out}.{weight,bias}, ln_f.{weight,bias},
// head.weight.
#pragma once
#include <memory>

#include "model/model.h"

namespace mantissa {

/// Uses layers, width, heads and context of `config`; weights are drawn as PyTorch's modules draw theirs.
std::unique_ptr<Model> make_gpt(const ModelConfig& config);

}  // namespace mantissa
