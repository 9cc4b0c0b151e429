// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of moejit_device/ptx/wgmma.cuh where the GPU has no WGMMA. Each warp of a warpgroup
// reads its 16 rows of A, and all of B, out of the same swizzled stages, and multiplies by
// mma.sync. Sums are in the same registers, so all that is built on WGMMA stays as it is. Products
// are complete when a function returns: there is nothing to wait for.
//
// FP8 is unpacked to f16, exactly, and multiplied 16 elements at a time in ascending order: the
// tensor cores add these products as they add bf16 (docs/recipes.md, "What tensor cores add").

#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/f16.cuh"
#include "moejit_device/ptx/warp_mma.cuh"

namespace moejit::device::ptx {

enum class Major { kK, kMn };

// Where an operand lies: an address in shared memory, before the swizzle.
struct MatrixDescriptor {
  uint32_t address;
  MOEJIT_DEVICE MatrixDescriptor operator+(int32_t bytes) const {
    return {address + static_cast<uint32_t>(bytes)};
  }
};
template <typename T>
MOEJIT_DEVICE MatrixDescriptor matrix_descriptor(SharedPtr<T> rows) {
  return {rows.address};
}
template <typename T>
MOEJIT_DEVICE MatrixDescriptor mn_major_descriptor(SharedPtr<T> boxes) {
  return {boxes.address};
}

template <int32_t kN>
struct WgmmaSum {
  static_assert(kN % 8 == 0 && kN >= 8 && kN <= 256, "WGMMA has 8 to 256 columns");
  float value[kN / 2];
  MOEJIT_DEVICE float operator()(int32_t i) const { return value[i]; }
};
struct RowFragments {
  uint32_t word[4][4];
};

template <typename... Named>
MOEJIT_DEVICE void wgmma_fence(Named&...) {}
MOEJIT_DEVICE void wgmma_commit() {}
// All lanes have read their operands.
template <int32_t kPending, typename... Named>
MOEJIT_DEVICE void wgmma_wait(Named&...) {
  sync_warp();
}

// Returns the 16 bytes at an address that the 128-byte swizzle moves.
MOEJIT_DEVICE SharedPtr<Bytes16> swizzled(uint32_t address) {
  return {address ^ ((address >> 3) & 0x70u)};
}

// The operands' elements of 32 bytes of a row.
struct OfBf16 {
  static constexpr bool kIsBf16 = true;
};
struct OfE4m3 {
  static constexpr bool kIsBf16 = false;
  MOEJIT_DEVICE static F16Quad unpack(uint32_t bytes) { return f16_from_e4m3(bytes); }
};
struct OfE5m2 {
  static constexpr bool kIsBf16 = false;
  MOEJIT_DEVICE static F16Quad unpack(uint32_t bytes) { return f16_from_e5m2(bytes); }
};

// A warp's 16 rows of A, 32 bytes each, as mma.sync takes them: in bf16 16 elements, in FP8 two
// times 16 in f16.
template <typename A>
struct WarpRows {
  uint32_t word[A::kIsBf16 ? 1 : 2][4];

  MOEJIT_DEVICE explicit WarpRows(const uint32_t (&rows)[4]) {
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      if constexpr (A::kIsBf16) {
        word[0][i] = rows[i];
      } else {
        // Words 0 and 1 are the first 16 bytes of rows; a lane's four bytes are 4 elements of 16.
        const F16Quad quad = A::unpack(rows[i]);
        word[i / 2][i % 2] = quad.low;
        word[i / 2][i % 2 + 2] = quad.high;
      }
    }
  }
};

// Adds the products of a warp's rows with 8 rows of B, 32 bytes each, which are in two words.
template <typename A, typename B>
MOEJIT_DEVICE void multiply_8_columns(float* d, const WarpRows<A>& a, uint32_t b0, uint32_t b1) {
  if constexpr (A::kIsBf16) {
    mma_bf16(d, a.word[0], b0, b1);
  } else {
    const F16Quad first = B::unpack(b0), second = B::unpack(b1);
    mma_f16(d, a.word[0], first.low, first.high);
    mma_f16(d, a.word[1], second.low, second.high);
  }
}

template <Major kMajor>
MOEJIT_DEVICE MatrixFragments load_rows_of_warp(MatrixDescriptor a) {
  const int32_t lane = lane_index(), row = warp_index() % 4 * 16;
  if constexpr (kMajor == Major::kK) {
    return load_operand(swizzled((a + ((row + lane % 16) * 128 + lane / 16 * 16)).address));
  } else {
    return load_operand_transposed(
        swizzled((a + ((lane % 8 + lane / 16 * 8) * 128 + (row + lane / 8 % 2 * 8) * 2)).address));
  }
}

// Returns 16 rows of B from row n on, or where there are no more, 8 rows twice.
template <Major kMajor>
MOEJIT_DEVICE MatrixFragments load_columns(MatrixDescriptor b, int32_t n, bool has_16) {
  const int32_t lane = lane_index();
  const int32_t column = n + (has_16 ? lane / 16 * 8 : 0);
  if constexpr (kMajor == Major::kK) {
    return load_operand(swizzled((b + ((column + lane % 8) * 128 + lane / 8 % 2 * 16)).address));
  } else {
    return load_operand_transposed(
        swizzled((b + (column / 64 * 8192 + (lane % 8 + lane / 8 % 2 * 8) * 128 + column % 64 * 2))
                     .address));
  }
}

template <int32_t kN>
MOEJIT_DEVICE void begin_sum(WgmmaSum<kN>& sum, bool accumulate) {
  if (accumulate) return;
#pragma unroll
  for (int32_t i = 0; i < kN / 2; ++i) sum.value[i] = 0.0f;
}

// sum[64, kN] += a[64, 32 bytes] * b[kN, 32 bytes]^T; if MN-major, 16 rows of k.
template <typename A, typename B, Major kMajorB, int32_t kN>
MOEJIT_DEVICE void multiply_32_bytes(WgmmaSum<kN>& sum, const WarpRows<A>& a, MatrixDescriptor b) {
#pragma unroll
  for (int32_t n = 0; n < kN; n += 16) {
    const bool has_16 = n + 8 < kN;
    const MatrixFragments columns = load_columns<kMajorB>(b, n, has_16);
    multiply_8_columns<A, B>(sum.value + n / 2, a, columns.word[0], columns.word[1]);
    if (has_16)
      multiply_8_columns<A, B>(sum.value + n / 2 + 4, a, columns.word[2], columns.word[3]);
  }
}

// sum[64, kN] (+)= the products of 128 bytes of the contraction, in four steps.
template <typename A, typename B, Major kMajorA, Major kMajorB, int32_t kN>
MOEJIT_DEVICE void multiply_128_bytes(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                      bool accumulate) {
  constexpr int32_t kStepA = kMajorA == Major::kMn ? 2048 : 32;
  constexpr int32_t kStepB = kMajorB == Major::kMn ? 2048 : 32;
  begin_sum(sum, accumulate);
  // Unrolled, operands of several steps that are unpacked at once leave no registers for the sums.
#pragma unroll 1
  for (int32_t k = 0; k < 4; ++k) {
    const WarpRows<A> rows(load_rows_of_warp<kMajorA>(a + kStepA * k).word);
    multiply_32_bytes<A, B, kMajorB>(sum, rows, b + kStepB * k);
  }
}

template <int32_t kN>
MOEJIT_DEVICE void wgmma_e4m3(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                              bool accumulate) {
  begin_sum(sum, accumulate);
  multiply_32_bytes<OfE4m3, OfE4m3, Major::kK>(
      sum, WarpRows<OfE4m3>(load_rows_of_warp<Major::kK>(a).word), b);
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_bf16(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                              bool accumulate) {
  begin_sum(sum, accumulate);
  multiply_32_bytes<OfBf16, OfBf16, Major::kK>(
      sum, WarpRows<OfBf16>(load_rows_of_warp<Major::kK>(a).word), b);
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_e4m3(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                   bool accumulate) {
  multiply_128_bytes<OfE4m3, OfE4m3, Major::kK, Major::kK>(sum, a, b, accumulate);
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_e5m2_e4m3(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                        bool accumulate) {
  multiply_128_bytes<OfE5m2, OfE4m3, Major::kK, Major::kK>(sum, a, b, accumulate);
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_e4m3_e5m2(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                        bool accumulate) {
  multiply_128_bytes<OfE4m3, OfE5m2, Major::kK, Major::kK>(sum, a, b, accumulate);
}
template <Major kA, Major kB, int32_t kN>
MOEJIT_DEVICE void wgmma_steps_bf16(WgmmaSum<kN>& sum, MatrixDescriptor a, MatrixDescriptor b,
                                    bool accumulate) {
  multiply_128_bytes<OfBf16, OfBf16, kA, kB>(sum, a, b, accumulate);
}

// A in registers.
template <typename Format, int32_t kN>
MOEJIT_DEVICE void multiply_registers(WgmmaSum<kN>& sum, const RowFragments& a, MatrixDescriptor b,
                                      bool accumulate) {
  begin_sum(sum, accumulate);
#pragma unroll
  for (int32_t k = 0; k < 4; ++k)
    multiply_32_bytes<Format, Format, Major::kK>(sum, WarpRows<Format>(a.word[k]), b + 32 * k);
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_e4m3(WgmmaSum<kN>& sum, const RowFragments& a, MatrixDescriptor b,
                                   bool accumulate) {
  multiply_registers<OfE4m3>(sum, a, b, accumulate);
}
template <int32_t kN>
MOEJIT_DEVICE void wgmma_rows_bf16(WgmmaSum<kN>& sum, const RowFragments& a, MatrixDescriptor b,
                                   bool accumulate) {
  multiply_registers<OfBf16>(sum, a, b, accumulate);
}

}  // namespace moejit::device::ptx
