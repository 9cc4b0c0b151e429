// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/checkpoint/expert_weights.h"
#include "runtime/checkpoint/shard_set.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace moejit::checkpoint {

// What a checkpoint has of the experts of one MoE layer. Tensors are called STEM + "0." + a part if
// each expert has its own, and STEM + a fused part if one tensor has all of them.
struct ExpertGroup {
  std::string prefix;            // "model.layers.3.mlp"
  std::string stem;              // "model.layers.3.mlp.experts."
  std::optional<int64_t> layer;  // 3
  std::set<int64_t> experts;     // numbers of those with tensors of their own
  std::set<std::string> parts;   // "gate_proj.weight", "down_proj.bias": of any of them
  std::set<std::string> fused;   // "gate_up_proj", "down_proj_bias"
};

// Finds every group by the names of tensors: by what stands before and behind the word `experts`,
// or before `input_linear.weight` and `output_linear.weight`. Groups have their prefixes as keys.
std::map<std::string, ExpertGroup> find_expert_groups(const ShardSet& shards);

// Chooses the group that the options ask for by prefix or number; without either, the only one.
// Errors: kMissingTensor if there is none, kInvalidValue if several fit; the hint lists what is
// there.
Result<ExpertGroup> choose_expert_group(const ShardSet& shards, const CheckpointOptions& options);

// Writes the numbers of a set as people say them: "0 to 3, 6".
std::string ranges_text(const std::set<int64_t>& numbers);

}  // namespace moejit::checkpoint
