// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/tensor_map.cuh"

namespace moejit::device {

// D = A * B[e]^T for the rows of each group e. P permuted rows, E groups, N columns of D in
// sections, k contraction. Rows of D from a group's count to the next group's start are written
// as zeros; rows from offs[E] on are untouched.
struct GroupedGemmParams {
  TensorMap a_map;  // A [P, k], boxes of 128 rows (swapped tiles: 16) x 128 bytes, swizzled
  TensorMap b_map;  // B [E * N, k], boxes of the widest tile's columns x 128 bytes
  TensorMap d_map;  // D [P, sections, section_n], boxes of 64 x 1 x 64; not if swapped
  const float* a_scale_inv;  // [P, ceil(k / 128)]
  const float* b_scale_inv;  // [E, sections * ceil(section_n / 128), ceil(k / 128)]
  Bf16* d;                   // [P, N]
  const int32_t* counts;     // [E]
  const int32_t* offs;       // [E + 1]
  uint64_t* elapsed;         // [2]: SM clocks and nanoseconds that CTA 0 ran; null: not wanted
};

}  // namespace moejit::device
