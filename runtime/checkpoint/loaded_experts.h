// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/checkpoint/expert_group.h"
#include "runtime/checkpoint/expert_weights.h"
#include "runtime/host_tensor.h"

namespace moejit::checkpoint {

// The tensors of a layer's experts, and how gate and up are arranged in those that have both.
struct LoadedExperts {
  runtime::TensorMap tensors;
  compiler::GateUpLayout layout = compiler::GateUpLayout::kConcat;
};

// Returns whether one tensor of the group has a projection of all experts, under a known name.
bool has_fused_experts(const ExpertGroup& group);

// Loads the fused experts: [E, 2I, H] and [E, H, I], or [E, H, 2I] and [E, I, H], which are
// transposed. Gate and up stay in the order of the file. If the shape of one tensor does not tell
// the orders apart, those of both do together: 2I == H and I == H do not hold at once. Errors:
// those of load_expert_weights().
Result<LoadedExperts> load_fused_experts(const compiler::Layer& layer, const ExpertGroup& group,
                                         const CheckpointOptions& options, ShardSet& shards);

// Returns whether each expert of the group has tensors of its own.
bool has_split_experts(const ExpertGroup& group);

// Loads the split experts, with all of gate first. Errors: those of load_expert_weights().
Result<LoadedExperts> load_split_experts(const compiler::Layer& layer, const ExpertGroup& group,
                                         int64_t first_expert, ShardSet& shards);

}  // namespace moejit::checkpoint
