// Weights of a model from and to a safetensors file, under PyTorch's names.
#pragma once
#include <filesystem>
#include <memory>

#include "fsdp/root.h"

namespace mantissa {

/// Copies every tensor of `file` into the parameters of `module`, converted to their types, before sharding.
/// Throws CheckpointError naming all tensors that are missing, extra or of another shape.
void load_weights(torch::nn::Module& module, const std::filesystem::path& file);

/// [all ranks] Gathers the parameters, one flat parameter at a time; rank 0 writes the file, in storage_dtype.
/// Throws CheckpointError on rank 0, PeerFailed on the others.
void save_weights(Root& root, const std::filesystem::path& file);

}  // namespace mantissa
