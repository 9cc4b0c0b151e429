// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/device.h"

#include <vector>

namespace moejit::runtime {

// Returns the memory that the tensors of a list have, which a multi-cast-transpose reads the
// addresses of: `list` is its argument of that name, in memory that the host can read. Empty for
// other kernels.
std::vector<MemoryRegion> listed_memory(const compiler::KernelPlan& kernel, const void* list);

}  // namespace moejit::runtime
