// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/device.h"
#include "runtime/launch/bound_tensors.h"

#include <vector>

namespace moejit::runtime {

// Returns the memory of the tensors whose addresses a multi-cast-transpose reads from `list`.
// `list` is its argument of that name, in memory that the host can read. Returns nothing for other
// kernels.
std::vector<MemoryRegion> listed_memory(const compiler::KernelPlan& kernel, const void* list);

// Refuses a backward call whose T differs from its forward call's, which filled the saved block:
// error kTensorMismatch with both. The host reads the block, which must be its own memory.
Result<void> check_saved_tokens(const compiler::Plan& plan, const BoundTensors& bound);

}  // namespace moejit::runtime
