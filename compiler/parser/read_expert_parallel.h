// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "compiler/support/json_view.h"

namespace moejit::compiler {

// Reads the field "expert_parallel" of a description with so many experts. Without the field the
// record has no ranks. Errors: unknown keys, ranks that do not divide the experts, an unknown
// combine or transport.
Result<ExpertParallel> read_expert_parallel(const JsonView& root, int32_t experts);

// Returns the experts of each rank that the layer's `experts` and `expert_parallel` give.
int32_t experts_of_rank(const Layer& layer);

// Refuses fields that a layer of a group cannot have. These are a wrong local_experts, more tokens
// or choices than an exchange takes, and fields for a host that dispatches rows itself.
Result<void> check_fields_of_group(const JsonView& root, const Layer& layer);

}  // namespace moejit::compiler
