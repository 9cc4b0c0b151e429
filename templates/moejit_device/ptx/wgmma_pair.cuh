// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of two blocks of 64 rows of A, one below the other, with the same columns of B. Hardware
// reads B out of shared memory for each of them. Targets without WGMMA replace this file: there a
// warp reads B once for both.

#include "moejit_device/ptx/wgmma.cuh"

namespace moejit::device::ptx {

inline constexpr int32_t kLowerRowsBytes = 64 * 128;  // of A before the lower block, of any major

// upper[64, kN] (+)= a[0:64, 64] * b[kN, 64]^T on bf16, and lower of rows 64 to 128 of A. Each sum
// gets the bits that wgmma_steps_bf16() gives it.
template <Major kA, Major kB, int32_t kN>
MOEJIT_DEVICE void wgmma_pair_steps_bf16(WgmmaSum<kN>& upper, WgmmaSum<kN>& lower,
                                         MatrixDescriptor a, MatrixDescriptor b, bool accumulate) {
  wgmma_steps_bf16<kA, kB>(upper, a, b, accumulate);
  wgmma_steps_bf16<kA, kB>(lower, a + kLowerRowsBytes, b, accumulate);
}

// Multiply [128, 128] and [kN, 128] in the same way, of e4m3, or of an e5m2 A and an e4m3 B.
template <int32_t kN>
MOEJIT_DEVICE void wgmma_pair_rows_e4m3(WgmmaSum<kN>& upper, WgmmaSum<kN>& lower,
                                        MatrixDescriptor a, MatrixDescriptor b, bool accumulate) {
  wgmma_rows_e4m3(upper, a, b, accumulate);
  wgmma_rows_e4m3(lower, a + kLowerRowsBytes, b, accumulate);
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_pair_rows_e5m2_e4m3(WgmmaSum<kN>& upper, WgmmaSum<kN>& lower,
                                             MatrixDescriptor a, MatrixDescriptor b,
                                             bool accumulate) {
  wgmma_rows_e5m2_e4m3(upper, a, b, accumulate);
  wgmma_rows_e5m2_e4m3(lower, a + kLowerRowsBytes, b, accumulate);
}

}  // namespace moejit::device::ptx
