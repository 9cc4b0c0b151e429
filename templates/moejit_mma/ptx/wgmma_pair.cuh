// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of moejit_device/ptx/wgmma_pair.cuh where the GPU has no WGMMA. A warp multiplies
// 16 rows of either block of A with columns of B that it reads once. So it reads 3 bytes of shared
// memory for 4 that two products would read, if a block has 64 columns. Shared memory is what
// limits these GEMMs on large SMs.

#include "moejit_device/ptx/wgmma.cuh"

namespace moejit::device::ptx {

inline constexpr int32_t kLowerRowsBytes = 64 * 128;

// upper, lower[64, kN] += the products of 32 bytes of the contraction; if MN-major, of 16 rows of
// k.
template <typename A, typename B, Major kMajorB, int32_t kN>
MOEJIT_DEVICE void multiply_pair_32_bytes(WgmmaSum<kN>& upper, WgmmaSum<kN>& lower,
                                          const WarpRows<A>& upper_rows,
                                          const WarpRows<A>& lower_rows, MatrixDescriptor b) {
  static_assert(kN % 16 == 0, "columns are read 16 at a time");
#pragma unroll
  for (int32_t n = 0; n < kN; n += 16) {
    const MatrixFragments columns = load_columns<kMajorB>(b, n, true);
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      const uint32_t b0 = columns.word[2 * i], b1 = columns.word[2 * i + 1];
      multiply_8_columns<A, B>(upper.value + n / 2 + 4 * i, upper_rows, b0, b1);
      multiply_8_columns<A, B>(lower.value + n / 2 + 4 * i, lower_rows, b0, b1);
    }
  }
}

template <Major kA, Major kB, int32_t kN>
MOEJIT_DEVICE void wgmma_pair_steps_bf16(WgmmaSum<kN>& upper, WgmmaSum<kN>& lower,
                                         MatrixDescriptor a, MatrixDescriptor b, bool accumulate) {
  constexpr int32_t kStepA = kA == Major::kMn ? 2048 : 32;
  constexpr int32_t kStepB = kB == Major::kMn ? 2048 : 32;
  begin_sum(upper, accumulate);
  begin_sum(lower, accumulate);
  // Unrolled, so that operands of a step are read while the step before is multiplied.
#pragma unroll
  for (int32_t k = 0; k < 4; ++k) {
    const WarpRows<OfBf16> upper_rows(load_rows_of_warp<kA>(a + kStepA * k).word);
    const WarpRows<OfBf16> lower_rows(
        load_rows_of_warp<kA>(a + (kLowerRowsBytes + kStepA * k)).word);
    multiply_pair_32_bytes<OfBf16, OfBf16, kB>(upper, lower, upper_rows, lower_rows,
                                               b + kStepB * k);
  }
}

}  // namespace moejit::device::ptx
