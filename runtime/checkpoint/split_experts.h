// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/checkpoint/expert_group.h"
#include "runtime/checkpoint/loaded_experts.h"

namespace moejit::checkpoint {

// Returns whether each expert of the group has tensors of its own.
bool has_split_experts(const ExpertGroup& group);

// Loads the split experts, with all of gate first. Errors: those of load_expert_weights().
Result<LoadedExperts> load_split_experts(const compiler::Layer& layer, const ExpertGroup& group,
                                         int64_t first_expert, ShardSet& shards);

}  // namespace moejit::checkpoint
