// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/tensors/host_tensor.h"
#include "compiler/layer.h"
#include "compiler/support/error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace moejit::cli {

// Where the experts of one layer are in a Hugging Face checkpoint.
struct CheckpointOptions {
  std::vector<std::string> shards;  // safetensors files; experts may be spread over them
  std::string prefix;               // "model.layers.3.mlp"
  int64_t first_expert = 0;         // number in the checkpoint of local expert 0
};

// The local experts' weights under the names of the layer's tensors, from
//   PREFIX.experts.N.gate_proj.weight, up_proj, down_proj    (DeepSeek, Qwen, GLM, ...)
//   PREFIX.experts.N.w1.weight, w3, w2                       (Mixtral)
// BF16 gives `w1` and `w2`. F8_E4M3 with a `weight_scale_inv` F32 beside each gives `w1_q`,
// `w1_scale_inv`, `w2_q`, `w2_scale_inv`: the published codes and scales as they are, never
// quantised again. Gate rows and their scale blocks come first, then up. Errors name file and
// tensor: kMissingTensor, kTensorMismatch, kInvalidFile (a tensor in two shards), and those of
// opening a shard.
Result<TensorMap> load_expert_weights(const compiler::Layer& layer,
                                      const CheckpointOptions& options);

}  // namespace moejit::cli
