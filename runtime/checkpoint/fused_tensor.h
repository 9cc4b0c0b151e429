// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/checkpoint/shard_set.h"
#include "runtime/host_tensor.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moejit::checkpoint {

// Returns how the model's family arranges gate and up in fused tensors. The family is `model_type`
// in the config.json of `folder`, either at its top or in its `text_config`. Returns none for an
// unknown family or without such a file. The file may have any content, since it only advises.
std::optional<compiler::GateUpLayout> family_gate_up_layout(const std::string& folder);

// Which experts of tensors are wanted, and the prefix of the tensors' names.
struct FusedTensorSource {
  int64_t experts = 0;  // E
  int64_t first_expert = 0;
  std::string stem;  // "model.layers.3.mlp.experts."
};

// How the matrices of a tensor are stored. kOutputFirst: a row for each result, [E, rows, columns]
// as in nn.Linear. kInputFirst: transposed, a row for each input, [E, columns, rows]. kEither: the
// matrix is square, so its shape does not tell.
enum class FusedOrder { kOutputFirst, kInputFirst, kEither };

// A tensor with one matrix [rows, columns] for each expert.
struct FusedMatrices {
  std::string name;  // in the checkpoint
  int64_t rows = 0, columns = 0;
  FusedOrder order = FusedOrder::kEither;
  ShardEntry values;  // BF16; or U8, two E2M1 a byte
  ShardEntry scales;  // only beside U8: E8M0, for each 32 columns
};

// Return the names of tensors that belong to a projection: biases, blocks and scales. For
// gate_up_proj these are "gate_up_proj_bias", "gate_up_proj_blocks" and "gate_up_proj_scales"; for
// "fc1.weight" the biases are "fc1.bias".
std::string bias_name(std::string_view projection);
std::string blocks_name(std::string_view projection);
std::string scales_name(std::string_view projection);

// Finds the tensor `projection` and checks its dtype and shape. Errors: kMissingTensor,
// kTensorMismatch.
Result<FusedMatrices> find_fused_matrices(const FusedTensorSource& source,
                                          std::string_view projection, int64_t rows,
                                          int64_t columns, ShardSet& shards);

// Reads the wanted experts as BF16 [E, rows, columns], whatever their order in the file is. Also
// returns kInvalidFile if scales of MXFP4 give values that bf16 does not hold.
Result<runtime::HostTensor> read_fused_matrices(const FusedTensorSource& source,
                                                const FusedMatrices& matrices, FusedOrder order);

// Reads the wanted experts of an MXFP4 tensor as packed tiles, NAME_q U8 and NAME_scale_inv F32,
// into `tensors`. Tiles restart at each of the `sections`, gate and up. Also returns
// kTensorMismatch for BF16, and kInvalidFile if a tile's scales are too far apart or NaN.
Result<void> read_packed_matrices(const FusedTensorSource& source, const FusedMatrices& matrices,
                                  int64_t sections, bool is_interleaved, const std::string& name,
                                  runtime::TensorMap& tensors);

// Reads a tensor with one row for each expert, BF16 [E, columns], such as biases.
Result<runtime::HostTensor> read_fused_rows(const FusedTensorSource& source, std::string_view name,
                                            int64_t columns, ShardSet& shards);

}  // namespace moejit::checkpoint
