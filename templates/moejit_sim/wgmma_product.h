// SPDX-License-Identifier: Apache-2.0
#pragma once

// The arithmetic of one WGMMA. As with mma (moejit_sim/ptx/mma.cuh): products are exact, those of
// one instruction are summed in double in the order of the contraction, the accumulator is added
// in double, and the result is rounded once, to fp32.

#include "moejit_sim/e4m3_table.h"
#include "moejit_sim/machine.h"

namespace moejit::sim {

inline constexpr int32_t kWgmmaRowBytes = 32;

struct WgmmaE4m3 {
  static constexpr int32_t kDepth = 32;
  static double decode(const unsigned char* row, int32_t k) { return kE4m3.value[row[k]]; }
};

struct WgmmaBf16 {
  static constexpr int32_t kDepth = 16;
  static double decode(const unsigned char* row, int32_t k) {
    const uint32_t bits = (uint32_t{row[2 * k]} << 16) | (uint32_t{row[2 * k + 1]} << 24);
    return static_cast<double>(__builtin_bit_cast(float, bits));
  }
};

// a * b + c. The product of two decoded numbers is exact, so that fusing changes no bit.
inline Double4 multiply_add(double a, const Double4& b, const Double4& c) {
#if defined(__FMA__)
  return __builtin_ia32_vfmaddpd256(Double4{a, a, a, a}, b, c);
#else
  return a * b + c;
#endif
}

// The sums of kRows rows and 8 columns: enough chains of additions to hide their latency. `b` has
// the columns' numbers side by side.
template <int32_t kRows, int32_t kDepth>
inline void multiply_block(const double (*a)[kDepth], const Double4 (*b)[2], Double4 (*sums)[2]) {
  Double4 sum[kRows][2] = {};
  for (int32_t k = 0; k < kDepth; ++k) {
#pragma GCC unroll 4
    for (int32_t r = 0; r < kRows; ++r) {
      sum[r][0] = multiply_add(a[r][k], b[k][0], sum[r][0]);
      sum[r][1] = multiply_add(a[r][k], b[k][1], sum[r][1]);
    }
  }
  __builtin_memcpy(sums, sum, sizeof(sum));
}

// Sums of two threads, two neighboring columns each, plus their products.
inline void add_pairs(float* first, float* second, const Double4& products, bool accumulate) {
  Float4 old{};
  if (accumulate) {
    __builtin_memcpy(&old, first, 8);
    __builtin_memcpy(reinterpret_cast<float*>(&old) + 2, second, 8);
  }
  const auto sums =
      __builtin_convertvector(__builtin_convertvector(old, Double4) + products, Float4);
  constexpr float kNan = __builtin_bit_cast(float, 0x7fffffff);
  const Float4 rounded = sums == sums ? sums : Float4{kNan, kNan, kNan, kNan};
  __builtin_memcpy(first, &rounded, 8);
  __builtin_memcpy(second, reinterpret_cast<const float*>(&rounded) + 2, 8);
}

// Columns 8 * panel and on of one row, which four neighboring lanes hold (ptx::WgmmaSum).
inline void add_row(const WgmmaOperands& operands, int32_t row, int32_t panel,
                    const Double4 (&products)[2]) {
  float* const* sums = operands.sums + 32 * (row / 16) + 4 * (row % 8);
  const int32_t element = 4 * panel + 2 * (row % 16 / 8);
  for (int32_t half = 0; half < 2; ++half) {
    add_pairs(sums[2 * half] + element, sums[2 * half + 1] + element, products[half],
              operands.accumulate);
  }
}

template <typename Format, int32_t kColumns>
void multiply_wgmma(const WgmmaOperands& operands) {
  constexpr int32_t kDepth = Format::kDepth;
  constexpr int32_t kRowsAtOnce = 4;
  auto* a = static_cast<double(*)[kDepth]>(operands.scratch);
  auto* b = reinterpret_cast<double(*)[kDepth][8]>(a + kWgmmaRows);  // [panel][k][column]
  for (int32_t row = 0; row < kWgmmaRows; ++row) {
    const unsigned char* bytes = operands.a + kWgmmaRowBytes * row;
    for (int32_t k = 0; k < kDepth; ++k) a[row][k] = Format::decode(bytes, k);
  }
  for (int32_t column = 0; column < kColumns; ++column) {
    const unsigned char* bytes = operands.b + kWgmmaRowBytes * column;
    for (int32_t k = 0; k < kDepth; ++k) b[column / 8][k][column % 8] = Format::decode(bytes, k);
  }
  for (int32_t panel = 0; panel < kColumns / 8; ++panel) {
    const auto* columns = reinterpret_cast<const Double4(*)[2]>(b[panel]);
    for (int32_t row = 0; row < kWgmmaRows; row += kRowsAtOnce) {
      Double4 sums[kRowsAtOnce][2];
      multiply_block<kRowsAtOnce, kDepth>(a + row, columns, sums);
      for (int32_t r = 0; r < kRowsAtOnce; ++r) add_row(operands, row + r, panel, sums[r]);
    }
  }
}

}  // namespace moejit::sim
