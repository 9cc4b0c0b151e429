// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

namespace moejit::compiler {

// Gives a memory-bound kernel, whose spec has the usual choices, its problem and those choices that
// the options' records name for it. Other kernels stay as they are.
void tune_kernel(KernelPlan& kernel, const CallBounds& bounds, const PlanOptions& options);

}  // namespace moejit::compiler
