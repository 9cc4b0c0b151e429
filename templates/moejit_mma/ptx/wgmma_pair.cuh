// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of moejit_device/ptx/wgmma_pair.cuh where the GPU has no WGMMA. A warp multiplies
// 16 rows of either block of A with columns of B that it reads, and unpacks, once. Shared memory is
// what limits GEMMs in bf16 on large SMs, unpacking what limits them in FP8.

#include "moejit_device/ptx/wgmma.cuh"

namespace moejit::device::ptx {

inline constexpr int32_t kLowerRowsBytes = 64 * 128;

// Columns of B, 32 bytes each, as mma.sync takes them: in bf16 16 elements, in FP8 two times 16 in
// f16.
template <typename B>
struct UnpackedColumns {
  uint32_t word[B::kIsBf16 ? 1 : 2][2];

  MOEJIT_DEVICE UnpackedColumns(uint32_t b0, uint32_t b1) {
    if constexpr (B::kIsBf16) {
      word[0][0] = b0;
      word[0][1] = b1;
    } else {
      const F16Quad first = B::unpack(b0), second = B::unpack(b1);
      word[0][0] = first.low;
      word[0][1] = first.high;
      word[1][0] = second.low;
      word[1][1] = second.high;
    }
  }
};

// d += the products of a warp's rows with 8 columns.
template <typename A, typename B>
MOEJIT_DEVICE void multiply_unpacked(float* d, const WarpRows<A>& a, const UnpackedColumns<B>& b) {
  if constexpr (A::kIsBf16) {
    mma_bf16(d, a.word[0], b.word[0][0], b.word[0][1]);
  } else {
    mma_f16(d, a.word[0], b.word[0][0], b.word[0][1]);
    mma_f16(d, a.word[1], b.word[1][0], b.word[1][1]);
  }
}

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
      const UnpackedColumns<B> unpacked(columns.word[2 * i], columns.word[2 * i + 1]);
      multiply_unpacked(upper.value + n / 2 + 4 * i, upper_rows, unpacked);
      multiply_unpacked(lower.value + n / 2 + 4 * i, lower_rows, unpacked);
    }
  }
}

// upper, lower[64, kN] (+)= the products of 128 bytes of the contraction, in four steps.
template <typename A, typename B, Major kMajorA, Major kMajorB, int32_t kN>
MOEJIT_DEVICE void multiply_pair_128_bytes(WgmmaSum<kN>& upper, WgmmaSum<kN>& lower,
                                           MatrixDescriptor a, MatrixDescriptor b,
                                           bool accumulate) {
  constexpr int32_t kStepA = kMajorA == Major::kMn ? 2048 : 32;
  constexpr int32_t kStepB = kMajorB == Major::kMn ? 2048 : 32;
  begin_sum(upper, accumulate);
  begin_sum(lower, accumulate);
  // Unrolled, so that operands of a step are read while the step before is multiplied.
#pragma unroll
  for (int32_t k = 0; k < 4; ++k) {
    const WarpRows<A> upper_rows(load_rows_of_warp<kMajorA>(a + kStepA * k).word);
    const WarpRows<A> lower_rows(
        load_rows_of_warp<kMajorA>(a + (kLowerRowsBytes + kStepA * k)).word);
    multiply_pair_32_bytes<A, B, kMajorB>(upper, lower, upper_rows, lower_rows, b + kStepB * k);
  }
}

template <Major kA, Major kB, int32_t kN>
MOEJIT_DEVICE void wgmma_pair_steps_bf16(WgmmaSum<kN>& upper, WgmmaSum<kN>& lower,
                                         MatrixDescriptor a, MatrixDescriptor b, bool accumulate) {
  multiply_pair_128_bytes<OfBf16, OfBf16, kA, kB>(upper, lower, a, b, accumulate);
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_pair_rows_e4m3(WgmmaSum<kN>& upper, WgmmaSum<kN>& lower,
                                        MatrixDescriptor a, MatrixDescriptor b, bool accumulate) {
  multiply_pair_128_bytes<OfE4m3, OfE4m3, Major::kK, Major::kK>(upper, lower, a, b, accumulate);
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_pair_rows_e5m2_e4m3(WgmmaSum<kN>& upper, WgmmaSum<kN>& lower,
                                             MatrixDescriptor a, MatrixDescriptor b,
                                             bool accumulate) {
  multiply_pair_128_bytes<OfE5m2, OfE4m3, Major::kK, Major::kK>(upper, lower, a, b, accumulate);
}

}  // namespace moejit::device::ptx
