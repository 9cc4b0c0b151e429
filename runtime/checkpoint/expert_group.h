// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/checkpoint/expert_weights.h"
#include "runtime/checkpoint/shard_set.h"
#include "runtime/host_tensor.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace moejit::checkpoint {

// What a checkpoint has of the experts of one MoE layer. If each expert has its own tensors, they
// are called STEM + "0." + a part. If one tensor has all experts, it is called STEM + a fused part.
struct ExpertGroup {
  std::string prefix;            // "model.layers.3.mlp"
  std::string stem;              // "model.layers.3.mlp.experts."
  std::optional<int64_t> layer;  // 3
  std::set<int64_t> experts;     // numbers of experts that have their own tensors
  std::set<std::string> parts;   // "gate_proj.weight", "down_proj.bias": that any of them has
  std::set<std::string> fused;   // "gate_up_proj", "down_proj_bias"
};

// Finds every group by the names of its tensors. Such a name has the word `experts`, or ends with
// `input_linear.weight` or `output_linear.weight`. The keys of the groups are their prefixes.
std::map<std::string, ExpertGroup> find_expert_groups(const ShardSet& shards);

// Chooses the group that the options ask for by prefix or number; without either, the only group.
// Errors: kMissingTensor if no group fits, kInvalidValue if several do. The hint lists the groups
// that are there.
Result<ExpertGroup> choose_expert_group(const ShardSet& shards, const CheckpointOptions& options);

// Returns the numbers of a set as people write them: "0 to 3, 6".
std::string ranges_text(const std::set<int64_t>& numbers);

// The tensors of a layer's experts. `layout` is how tensors with both gate and up arrange them.
struct LoadedExperts {
  runtime::TensorMap tensors;
  compiler::GateUpLayout layout = compiler::GateUpLayout::kConcat;
};

// Returns the order of gate and up of a layer as long as they are one tensor.
inline compiler::GateUpLayout joined_layout(const compiler::Layer& layer) {
  return has_separate_gate_up(layer) ? compiler::GateUpLayout::kConcat : layer.gate_up_layout;
}

// Returns whether the group has a projection of all experts in one tensor, under a known name.
bool has_fused_experts(const ExpertGroup& group);

// Loads the fused experts: [E, 2I, H] and [E, H, I], or [E, H, 2I] and [E, I, H], which are
// transposed. Gate and up stay in the order of the file. If the matrices of one tensor are square,
// its shape does not tell its order, but the other tensor's shape does. With a gate both are never
// square, since 2I == H and I == H do not hold at once. Returns the errors of
// load_expert_weights().
Result<LoadedExperts> load_fused_experts(const compiler::Layer& layer, const ExpertGroup& group,
                                         const CheckpointOptions& options, ShardSet& shards);

// Returns whether each expert of the group has tensors of its own.
bool has_split_experts(const ExpertGroup& group);

// Loads the split experts, with all of gate first. Returns the errors of load_expert_weights().
Result<LoadedExperts> load_split_experts(const compiler::Layer& layer, const ExpertGroup& group,
                                         int64_t first_expert, ShardSet& shards);

// Loads split experts in NVFP4 or INT4, as the layer's weight_format says, into packed tiles and
// factors. Returns the errors of load_expert_weights().
Result<LoadedExperts> load_packed_experts(const compiler::Layer& layer, const ExpertGroup& group,
                                          int64_t first_expert, ShardSet& shards);

}  // namespace moejit::checkpoint
