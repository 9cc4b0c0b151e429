// SPDX-License-Identifier: Apache-2.0
#pragma once

// A multiplication of mainloop.cuh for two blocks of 64 rows of the m side, one below the other,
// with the same rows of the n side. The type of the first argument chooses the formats.

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/ptx/wgmma_pair.cuh"

namespace moejit::device {

template <int32_t kN>
MOEJIT_DEVICE void multiply_pair(MultiplyE4m3, ptx::WgmmaSum<kN>& upper, ptx::WgmmaSum<kN>& lower,
                                 ptx::MatrixDescriptor m, ptx::MatrixDescriptor n,
                                 bool accumulate) {
  ptx::wgmma_pair_rows_e4m3(upper, lower, m, n, accumulate);
}
template <int32_t kN>
MOEJIT_DEVICE void multiply_pair(MultiplyE5m2E4m3, ptx::WgmmaSum<kN>& upper,
                                 ptx::WgmmaSum<kN>& lower, ptx::MatrixDescriptor m,
                                 ptx::MatrixDescriptor n, bool accumulate) {
  ptx::wgmma_pair_rows_e5m2_e4m3(upper, lower, m, n, accumulate);
}
template <ptx::Major kMajorA, ptx::Major kMajorB, int32_t kN>
MOEJIT_DEVICE void multiply_pair(MultiplyBf16<kMajorA, kMajorB>, ptx::WgmmaSum<kN>& upper,
                                 ptx::WgmmaSum<kN>& lower, ptx::MatrixDescriptor m,
                                 ptx::MatrixDescriptor n, bool accumulate) {
  ptx::wgmma_pair_steps_bf16<kMajorA, kMajorB>(upper, lower, m, n, accumulate);
}

}  // namespace moejit::device
