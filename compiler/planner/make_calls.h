// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/operation.h"

#include <span>

namespace moejit::compiler {

// Fill the plan's calls and absent calls: of a layer, and of a plan with the one call "run", which
// runs all kernels. Kernels, collectives and tensors of the plan are complete. `operations` are the
// kernels' ones.
void make_layer_calls(const Layer& layer, std::span<const Operation* const> operations, Plan& plan);
void make_operation_calls(Plan& plan);

}  // namespace moejit::compiler
