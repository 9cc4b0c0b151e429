// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// D = A * B[e]^T for the rows of each group e. P permuted rows, E groups, N columns of D in
// sections, k contraction. Rows of D from a group's count to the next group's start are written
// as zeros; rows from offs[E] on are untouched.
struct GroupedGemmParams {
  const E4m3* a;             // [P, k]
  const float* a_scale_inv;  // [P, ceil(k / 128)]
  const E4m3* b;             // [E, N, k]
  const float* b_scale_inv;  // [E, sections * ceil(section_n / 128), ceil(k / 128)]
  Bf16* d;                   // [P, N]
  const int32_t* counts;     // [E]
  const int32_t* offs;       // [E + 1]
};

}  // namespace moejit::device
