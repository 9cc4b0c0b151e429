// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/tensor_map.cuh"
#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// D[e] = A[:, columns of e] * B[:, columns of e]^T for each group e of columns: the contraction is
// over a group's tokens. E groups, C columns of A and B, `rows` of A and D, `n` rows of B and
// columns of D. Columns lie in blocks of 128: A is [C / 128, rows, 128] in memory, B [C / 128, n,
// 128]. Groups start at multiples of 128; the columns from a group's count to the next multiple of
// 128 hold zeros. Without scales A and B are bf16 with tokens as rows, [C, rows] and [C, n], and 64
// takes the place of 128.
struct ContractionGroupedGemmParams {
  TensorMap a_map;  // A [C / 128, rows, 128], boxes of 1 x 128 x 128, swizzled; without
                    // scales [1, C, rows], boxes of 1 x 64 x 64
  TensorMap b_map;  // B [C / 128, n, 128], boxes of 1 x the widest tile's columns x 128; without
                    // scales [1, C, n], boxes of 1 x 64 x 64
  TensorMap d_map;  // D [E, rows, n], boxes of 1 x 64 x 128 bytes, swizzled; if
                    // interleaved [E, rows / sections, sections, n], 1 x 64 x 1 x 128 bytes
  const float* a_scale_inv;  // [ceil(rows / 128), C / 128], or of each row: [C / 128, rows]
  const float* b_scale_inv;  // [ceil(n / 128), C / 128], or of each row: [C / 128, n]
  const int32_t* counts;     // [E]
  const int32_t* offs;       // [E + 1], multiples of 128, or 64
  int64_t columns;           // C, a multiple of 128, or 64
  uint64_t* elapsed;         // [2]: SM clocks and nanoseconds that CTA 0 ran; null: not wanted
  CallTokens call;
};

}  // namespace moejit::device
