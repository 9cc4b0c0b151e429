// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/simulator/wgmma_arithmetic.h"

namespace moejit::runtime {

// Return the arithmetic as wgmma_arithmetic() does, each for one level.
MultiplyWgmma baseline_arithmetic(sim::OperandFormat a, sim::OperandFormat b);
MultiplyWgmma avx2_arithmetic(sim::OperandFormat a, sim::OperandFormat b);

}  // namespace moejit::runtime
