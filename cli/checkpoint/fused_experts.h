// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/checkpoint/checkpoint_options.h"
#include "cli/checkpoint/expert_group.h"
#include "cli/checkpoint/loaded_experts.h"

namespace moejit::cli {

// Whether one tensor of the group has a projection of all experts, under a name that is known.
bool has_fused_experts(const ExpertGroup& group);

// Loads those: [E, 2I, H] and [E, H, I], or [E, H, 2I] and [E, I, H], which are transposed. Gate
// and up have the order that the file has them in. Where shapes do not tell one from the other,
// those of the two tensors do together: 2I == H and I == H do not hold at once. Errors: as of
// load_expert_weights().
Result<LoadedExperts> load_fused_experts(const compiler::Layer& layer, const ExpertGroup& group,
                                         const CheckpointOptions& options, ShardSet& shards);

}  // namespace moejit::cli
