// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

namespace moejit::compiler {

// Fills the plan's calls and absent calls, of a layer or of an operation, whose one call is "run".
// Kernels, collectives and tensors of the plan are complete.
void make_layer_calls(const Layer& layer, Plan& plan);
void make_operation_calls(Plan& plan);

}  // namespace moejit::compiler
