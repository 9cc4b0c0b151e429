// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moejit::checkpoint {

// Says where the experts of one layer are in a Hugging Face checkpoint.
struct CheckpointOptions {
  std::vector<std::string> shards;      // files that share the experts; an index, a folder
  std::optional<std::string> prefix;    // "model.layers.3.mlp"
  std::optional<int64_t> layer_number;  // 3, instead of a prefix
  int64_t first_expert = 0;             // number in the checkpoint of local expert 0
  // How gate and up are arranged in a fused tensor; empty: as the family arranges them.
  std::optional<compiler::GateUpLayout> gate_up_layout;
};

}  // namespace moejit::checkpoint
