// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/checkpoint/checkpoint_options.h"
#include "runtime/checkpoint/expert_group.h"
#include "runtime/checkpoint/loaded_experts.h"

namespace moejit::checkpoint {

// Returns whether one tensor of the group has a projection of all experts, under a known name.
bool has_fused_experts(const ExpertGroup& group);

// Loads the fused experts: [E, 2I, H] and [E, H, I], or [E, H, 2I] and [E, I, H], which are
// transposed. Gate and up stay in the order of the file. If the shape of one tensor does not tell
// the orders apart, those of both do together: 2I == H and I == H do not hold at once. Errors:
// those of load_expert_weights().
Result<LoadedExperts> load_fused_experts(const compiler::Layer& layer, const ExpertGroup& group,
                                         const CheckpointOptions& options, ShardSet& shards);

}  // namespace moejit::checkpoint
