// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/checkpoint/shard_set.h"
#include "runtime/host_tensor.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace moejit::checkpoint {

// Says which experts of tensors are wanted, and what stands before their names.
struct FusedTensorSource {
  int64_t experts = 0;  // E
  int64_t first_expert = 0;
  std::string stem;  // "model.layers.3.mlp.experts."
};

// How the matrices of a tensor are stored: a row for each result, [E, rows, columns] as in
// nn.Linear, or transposed, a row for each input, [E, columns, rows]. The shape of a square does
// not tell.
enum class FusedOrder { kOutputFirst, kInputFirst, kEither };

// A tensor of one matrix [rows, columns] for each expert.
struct FusedMatrices {
  std::string name;  // in the checkpoint
  int64_t rows = 0, columns = 0;
  FusedOrder order = FusedOrder::kEither;
  ShardEntry values;  // BF16; or U8, two E2M1 a byte,
  ShardEntry scales;  // with U8 (E8M0) for each 32 columns
};

// Return the names that belong to a projection: "gate_up_proj_bias", "gate_up_proj_blocks" and
// "gate_up_proj_scales" for gate_up_proj, "fc1.bias" for "fc1.weight".
std::string bias_name(std::string_view projection);
std::string blocks_name(std::string_view projection);
std::string scales_name(std::string_view projection);

// Finds the tensor `projection` and checks dtype and shape. Errors: kMissingTensor,
// kTensorMismatch.
Result<FusedMatrices> find_fused_matrices(const FusedTensorSource& source,
                                          std::string_view projection, int64_t rows,
                                          int64_t columns, ShardSet& shards);

// Reads the wanted experts as BF16 [E, rows, columns], whatever their order in the file. Also
// returns kInvalidFile for MXFP4 whose scales give values that bf16 does not hold.
Result<runtime::HostTensor> read_fused_matrices(const FusedTensorSource& source,
                                                const FusedMatrices& matrices, FusedOrder order);

// Reads a tensor of one row for each expert, BF16 [E, columns], such as biases.
Result<runtime::HostTensor> read_fused_rows(const FusedTensorSource& source, std::string_view name,
                                            int64_t columns, ShardSet& shards);

}  // namespace moejit::checkpoint
