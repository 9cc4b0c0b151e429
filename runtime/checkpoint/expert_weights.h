// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "compiler/support/error.h"
#include "runtime/host_tensor.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moejit::checkpoint {

// Replaces `w1_q`, `w1_scale_inv`, `w2_q` and `w2_scale_inv` by BF16 `w1` and `w2`. Each code is
// multiplied by the scale of its 128x128 block and rounded once. Blocks of `w1` restart at the up
// half.
void dequantize_weights(const compiler::Layer& layer, runtime::TensorMap& tensors);

inline constexpr int64_t kMxfp4Block = 32;       // elements that share a scale
inline constexpr int64_t kMxfp4BlockBytes = 16;  // two elements a byte, the first in the lower half

// Decodes MXFP4 to bf16 (OCP Microscaling Formats, version 1.0): E2M1 numbers in blocks of 32, each
// times 2^(scale - 127). For each of the `scales`, `codes` has 16 bytes and `values` 32 numbers.
// Results are exact, since bf16 has more bits than E2M1, and the exponents of fp32. Exceptions are
// blocks whose scale is 255, which means NaN, or so large that a number of the block is beyond
// bf16. Returns the first such block, if any.
std::optional<std::size_t> decode_mxfp4(std::span<const std::uint8_t> codes,
                                        std::span<const std::uint8_t> scales,
                                        std::span<std::uint16_t> values);

// Where the experts of one layer are in a Hugging Face checkpoint.
struct CheckpointOptions {
  std::vector<std::string> shards;      // files with parts of the experts, an index, or a folder
  std::optional<std::string> prefix;    // "model.layers.3.mlp"
  std::optional<int64_t> layer_number;  // 3, instead of a prefix
  int64_t first_expert = 0;             // number in the checkpoint of local expert 0
  // How a fused tensor arranges gate and up; empty: as the model's family does.
  std::optional<compiler::GateUpLayout> gate_up_layout;
};

// Loads the local experts' weights under the names of the layer's tensors, from
//   PREFIX.experts.N.gate_proj.weight, up_proj, down_proj    (DeepSeek, Qwen, GLM, ...)
//   PREFIX.experts.N.w1.weight, w3, w2                       (Mixtral, MiniMax)
//   PREFIX.experts.gate_up_proj, down_proj                   (gpt-oss, Llama-4, ...)
//
// BF16 gives `w1` and `w2`. MXFP4 (gate_up_proj_blocks, gate_up_proj_scales) gives them too,
// exactly. If the layer takes packed weights, it gives `w1_q`, `w1_scale_inv`, `w2_q` and
// `w2_scale_inv` in packed tiles of the same values. F8_E4M3, with a `weight_scale_inv` (F32 or
// BF16) beside each tensor, gives tensors of these names too. These are the published codes and
// scales as they are, never quantized again. If the recipe is `bf16` or the layer has a backward
// pass, F8_E4M3 gives `w1` and `w2` instead, rounded to bf16.
//
// Rows of `w1` and elements of `b1` have the order of the layer's `gate_up_layout`, whatever the
// file's order is. `w1_q` has all of gate first.
//
// Errors name file and tensor. kUnsupported: the layer takes packed weights, and each expert has
// tensors of its own; or it has shared experts. kInvalidFile: a tensor is in two shards.
// kInvalidValue: the options do not say which tensors are meant. Also kMissingTensor,
// kTensorMismatch, and the errors of opening a shard.
Result<runtime::TensorMap> load_expert_weights(const compiler::Layer& layer,
                                               const CheckpointOptions& options);

}  // namespace moejit::checkpoint
