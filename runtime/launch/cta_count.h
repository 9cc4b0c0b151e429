// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>

namespace moejit::runtime {

// How many CTAs a kernel gets for T tokens on a device with so many SMs: those that have work, cut
// at what the device holds at once where the kernel is persistent.
int64_t cta_count(const compiler::KernelPlan& kernel, int64_t tokens, int32_t sm_count);

}  // namespace moejit::runtime
