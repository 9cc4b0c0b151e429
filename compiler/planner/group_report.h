// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/support/json_text.h"

#include <cstdint>
#include <string>

namespace moejit::compiler {

// Places what peers reach: tensors that each rank has, of rank `rank`, and the epoch. Layers with
// other kernels share the memory, so the order is always the same. The flags of routes have a place
// in every group that exchanges choices.
GroupMemory group_memory(const Plan& plan, int64_t rank);

// Return the section about the group of a plan, as text for people and as JSON.
std::string group_text(const Plan& plan, int32_t width);
Json group_json(const Plan& plan);

}  // namespace moejit::compiler
