// SPDX-License-Identifier: Apache-2.0
#pragma once

// Segments of rows in which gate and up alternate, element by element. A lane's run of 8 columns is
// 32 neighboring bytes there, two accesses.

#include "moejit_device/ptx/bytes.cuh"
#include "moejit_device/stage/position.cuh"

namespace moejit::device {

// Fetches pairs of bf16 [rows, 2C]; zeros if the position is not real and in columns outside the
// row. The second access finds its sectors in L1, which streaming loads would bypass.
template <int32_t kColumns>
MOEJIT_DEVICE void fetch_pairs(ptx::GlobalPtr<const Bf16> matrix,
                               const SegmentPosition<kColumns>& at, Bf16Segment& gate,
                               Bf16Segment& up) {
#pragma unroll
  for (int32_t run = 0; run < 2; ++run) {
    const int32_t column = run_column(run);
    if (!at.is_real() || !at.is_inside(column)) continue;
    const auto from = ptx::as<const Bytes16>(matrix + 2 * at.offset(column));
#pragma unroll
    for (int32_t half = 0; half < 2; ++half) {
      const Bytes16 pairs = ptx::load(from + half);
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        const uint32_t first = pairs.word[2 * i], second = pairs.word[2 * i + 1];
        gate.run[run].word[2 * half + i] = ptx::permute_bytes<0x5410>(first, second);
        up.run[run].word[2 * half + i] = ptx::permute_bytes<0x7632>(first, second);
      }
    }
  }
}

// Stores pairs if the position exists.
template <int32_t kColumns>
MOEJIT_DEVICE void store_pairs(ptx::GlobalPtr<Bf16> matrix, const SegmentPosition<kColumns>& at,
                               const Bf16Segment& gate, const Bf16Segment& up) {
#pragma unroll
  for (int32_t run = 0; run < 2; ++run) {
    const int32_t column = run_column(run);
    if (!at.exists() || !at.is_inside(column)) continue;
    const auto to = ptx::as<Bytes16>(matrix + 2 * at.offset(column));
#pragma unroll
    for (int32_t half = 0; half < 2; ++half) {
      Bytes16 pairs;
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        const uint32_t first = gate.run[run].word[2 * half + i];
        const uint32_t second = up.run[run].word[2 * half + i];
        pairs.word[2 * i] = ptx::permute_bytes<0x5410>(first, second);
        pairs.word[2 * i + 1] = ptx::permute_bytes<0x7632>(first, second);
      }
      ptx::store_streaming(to + half, pairs);
    }
  }
}

}  // namespace moejit::device
