// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/tensor_map.cuh"
#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// D = A * B[e]^T for the rows of each group e. P permuted rows, E groups, N columns of D in
// sections, k contraction. The epilogue stores D, its activation Q, or both; fields that it does
// not use are null. Rows from a group's count to the next group's start are written as zeros, with
// scale 0. Rows from offs[E] on are untouched, or rows of D up to the T of the call become zeros
// (GroupedGemm).
template <typename MapB>
struct GroupedGemmParamsOf {
  TensorMap a_map;  // A [P, k], boxes of 128 rows (swapped tiles: 16) x 128 bytes, swizzled
  MapB b_map;       // B [E * N, k], boxes of a tile's columns of one section x 128 bytes; if
                    // MN-major B [E, k, N], boxes of 1 x 64 x 64; of gated swapped tiles
                    // [columns / 8, gate and up, 8, k], boxes of a tile's columns; if packed its
                    // tiles as lines of 128 bytes, boxes of kPackedTileBytes. Where gate and up are
                    // tensors of their own, the maps of both (SeparateWeights)
  TensorMap d_map;  // D [P, sections, section_n], boxes of 64 x 1 x 64, swizzled; not if swapped
  TensorMap q_map;  // Q [P, section_n], boxes of 64 x 128, swizzled
  // Scales, by what they belong to:
  //   blocks           a_scale_inv [P, ceil(k / 128)],
  //                    b_scale_inv [E, sections * ceil(section_n / 128), ceil(k / 128)]
  //   tensors          a_scale_inv [E], b_scale_inv [E]
  //   rows, columns    a_scale_inv [P], b_scale_inv [E, N], 8-byte aligned
  //   nothing          both null
  const float* a_scale_inv;
  const float* b_scale_inv;
  const float* probs;     // [P]: what rows of Q, or the bias, are multiplied with
  Bf16* d;                // [P, N]
  E4m3* q;                // [P, section_n]: the activation of D's two sections, gate and up; bf16
                          // where the epilogue does not quantize
  float* q_scale_inv;     // [P, ceil(section_n / 128)]
  const int32_t* counts;  // [E]
  const int32_t* offs;    // [E + 1]
  uint64_t* elapsed;      // [2]: SM clocks and nanoseconds that CTA 0 ran; null: not wanted
  const Bf16* bias;       // [E, N], where it is added; gate and up may alternate in it
  const void* topk_ids;   // [T, K] int32 or int64, where groups are found in them; others: null
  CallTokens call;
};

using GroupedGemmParams = GroupedGemmParamsOf<TensorMap>;

}  // namespace moejit::device
