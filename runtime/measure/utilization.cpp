// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/utilization.h"

#include <algorithm>

namespace moejit::measure {

int64_t peak_multiply_adds(const compiler::KernelPlan& kernel) {
  // Only e4m3 operands come with scales.
  const bool is_e4m3 = std::ranges::find(kernel.arguments, "a_scale_inv",
                                         &compiler::KernelArgument::role) != kernel.arguments.end();
  return is_e4m3 ? 4096 : 2048;
}

double utilization(int64_t multiply_adds, int32_t sm_count, int64_t peak, const Cycles& taken) {
  const double cycles = taken.microseconds * taken.megahertz;
  return static_cast<double>(multiply_adds) /
         (static_cast<double>(sm_count) * static_cast<double>(peak) * cycles);
}

}  // namespace moejit::measure
