// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/work.h"

#include <cstdint>
#include <span>

namespace moejit::compiler {

// About what a kernel takes in the simulator: nanoseconds of one core, and how many CTAs share
// them.
struct SimulatedCost {
  double nanoseconds = 0.0;
  int32_t most_ctas = INT32_MAX;
};

// Estimates a call of a kernel from its work and the rows of each local expert. The rates were
// measured on one machine (docs/simulator.md); a busy or slower one takes longer.
SimulatedCost simulated_cost(const KernelPlan& kernel, const Work& work,
                             std::span<const int64_t> rows_of_experts);

}  // namespace moejit::compiler
