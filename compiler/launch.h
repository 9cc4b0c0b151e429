// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/call_dims.h"
#include "compiler/plan.h"

#include <cstdint>
#include <vector>

namespace moejit::compiler {

// These pure functions tell how kernels are launched. The planner asks for the layer's largest
// call, the runtime for each call; neither knows the routing.

// Returns threads, shared memory and CTAs per SM of a kernel, and whether CTAs walk; max_ctas is
// left at 1.
LaunchShape launch_shape(const KernelSpec& spec);

// Returns the numbers of a kernel's parameter record.
std::vector<KernelNumber> kernel_numbers(const KernelSpec& spec, const CallBounds& bounds);

// Returns how many CTAs have work in a call over T tokens, whatever the routing. Results never
// depend on it.
int64_t busy_ctas(const KernelSpec& spec, const CallBounds& bounds, int64_t tokens);

}  // namespace moejit::compiler
