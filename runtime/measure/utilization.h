// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"

#include <cstdint>

namespace moejit::measure {

// Returns the multiply-adds that the matrix units of one SM of an H100 or H200 finish in a cycle.
// In the format that the kernel multiplies these are 4096 for e4m3, 2048 for bf16. (NVIDIA H100
// Tensor Core GPU Architecture: 1978.9 and 989.4 dense TFLOP/s from 132 SMs at 1830 MHz.)
int64_t peak_multiply_adds(const compiler::KernelPlan& kernel);

// The time that a kernel took, and the frequency of the SMs during it.
struct Cycles {
  double microseconds = 0.0;
  double megahertz = 0.0;
};
// Returns multiply_adds / (SMs x peak x cycles), which is 1 if every matrix unit works in every
// cycle that the kernel took.
double utilization(int64_t multiply_adds, int32_t sm_count, int64_t peak, const Cycles& taken);

}  // namespace moejit::measure
