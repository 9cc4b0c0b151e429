// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>

namespace moejit::runtime {

// Returns how many CTAs a kernel gets for T tokens on a device with `sm_count` SMs. It gets as many
// as have work; a persistent kernel gets no more than the device holds at once.
int64_t cta_count(const compiler::KernelPlan& kernel, int64_t tokens, int32_t sm_count);

}  // namespace moejit::runtime
