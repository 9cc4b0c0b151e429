// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/checkpoint/expert_group.h"
#include "runtime/checkpoint/expert_weights.h"
#include "runtime/host_tensor.h"

namespace moejit::checkpoint {

// The tensors of a layer's experts. `layout` is how tensors with both gate and up arrange them.
struct LoadedExperts {
  runtime::TensorMap tensors;
  compiler::GateUpLayout layout = compiler::GateUpLayout::kConcat;
};

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

}  // namespace moejit::checkpoint
