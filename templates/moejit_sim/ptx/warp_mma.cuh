// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/warp_mma.cuh. The sums have every bit that tensor cores
// give them (docs/recipes.md, "What tensor cores add"). The machine says how many products are
// added at once, 16 or 8, and F: 25 or 24. For each element of d and such a step
//   e    = exponent of a + exponent of b    of each product, as the operands' fields say
//   E    = the largest e of products that are not 0, and of the sum so far; -133 at least
//   d'   = the products and d, each cut toward zero at 2^(E - F), added exactly, and cut toward
//          zero to the bits of fp32
// An H200 gave these bits for 192,000 sums each of f16 and bf16, 16 products at once and F = 25.

#include "moejit_device/ptx/f16.cuh"
#include "moejit_device/ptx/mma.cuh"

namespace moejit::device::ptx {

// Loads matrices; `fill` makes a lane's word of a matrix from the rows that lanes gave.
template <typename Fill>
MOEJIT_DEVICE MatrixFragments load_operand_with(SharedPtr<Bytes16> row, Site site,
                                                const Fill& fill) {
  Machine* m = machine();
  MatrixFragments f;
  MatrixLane own{m->calls->access_shared(m, row.address, 16, Access::kOperandRead, site), f.word};
  if (m->calls->meet(m, Collective::kLoadMatrices, &own, site)) {
    const auto row_of = [m](int32_t lane) {
      return static_cast<const unsigned char*>(static_cast<MatrixLane*>(m->lanes[lane])->row);
    };
    for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane)
      for (int32_t matrix = 0; matrix < 4; ++matrix)
        static_cast<MatrixLane*>(m->lanes[lane])->words[matrix] = fill(row_of, lane, matrix);
    m->calls->part(m);
  }
  return f;
}

MOEJIT_DEVICE MatrixFragments load_operand(SharedPtr<Bytes16> row, Site site = Site::here()) {
  return load_operand_with(row, site, [](const auto& row_of, int32_t lane, int32_t matrix) {
    uint32_t word;
    __builtin_memcpy(&word, row_of(8 * matrix + lane / 4) + 4 * (lane % 4), 4);
    return word;
  });
}

MOEJIT_DEVICE MatrixFragments load_operand_transposed(SharedPtr<Bytes16> row,
                                                      Site site = Site::here()) {
  return load_operand_with(row, site, [](const auto& row_of, int32_t lane, int32_t matrix) {
    uint32_t word = 0;
    for (int32_t half = 0; half < 2; ++half) {
      uint16_t element;
      __builtin_memcpy(&element, row_of(8 * matrix + 2 * (lane % 4) + half) + 2 * (lane / 4), 2);
      word |= static_cast<uint32_t>(element) << (16 * half);
    }
    return word;
  });
}

// A number as tensor cores read it: a subnormal has the exponent of the smallest normal numbers.
struct MmaNumber {
  double value;
  int32_t exponent;
};

struct MmaBf16 {
  MOEJIT_DEVICE static MmaNumber number(uint32_t bits) {
    const auto field = static_cast<int32_t>((bits >> 7) & 255u);
    return {float_from_bits(bits << 16), (field > 0 ? field : 1) - 127};
  }
};
struct MmaF16 {
  MOEJIT_DEVICE static MmaNumber number(uint32_t bits) {
    const auto field = static_cast<int32_t>((bits >> 10) & 31u);
    return {float_from_f16(bits), (field > 0 ? field : 1) - 15};
  }
};

// 2^exponent, which double has.
MOEJIT_DEVICE double power_of_two(int32_t exponent) {
  return __builtin_bit_cast(double, static_cast<uint64_t>(1023 + exponent) << 52);
}

// Returns a sum that has the bits of fp32, and is cut toward zero where subnormals have fewer.
MOEJIT_DEVICE float cut_to_fp32(double sum) {
  if (sum < 0x1p-126 && sum > -0x1p-126)
    return static_cast<float>(static_cast<double>(static_cast<int64_t>(sum * 0x1p149)) * 0x1p-149);
  return static_cast<float>(sum);
}

// Returns c and the products of kProducts elements of a and b, added as tensor cores add them.
template <int32_t kProducts>
MOEJIT_DEVICE float add_products(int32_t fraction, const MmaNumber* a, const MmaNumber* b,
                                 float c) {
  constexpr int32_t kFp32Bits = 23, kLeastExponent = -133;
  double plain = c;  // tells whether the sum is finite
  int32_t largest = kLeastExponent;
  const auto field = static_cast<int32_t>((bits_of(c) >> 23) & 255u);
  if (c != 0.0f && (field > 0 ? field : 1) - 127 > largest) largest = (field > 0 ? field : 1) - 127;
  for (int32_t k = 0; k < kProducts; ++k) {
    const double product = a[k].value * b[k].value;
    plain += product;
    const int32_t exponent = a[k].exponent + b[k].exponent;
    if (product != 0.0 && exponent > largest) largest = exponent;
  }
  if (plain != plain) return float_from_bits(0x7fffffffu);
  if (__builtin_isinf(plain)) return static_cast<float>(plain);
  // Terms count 2^(largest - fraction): the conversion to integers cuts.
  const double scale = power_of_two(fraction - largest);
  auto total = static_cast<int64_t>(static_cast<double>(c) * scale);
  for (int32_t k = 0; k < kProducts; ++k)
    total += static_cast<int64_t>(a[k].value * b[k].value * scale);
  constexpr uint64_t kKept = ~uint64_t{0} << (52 - kFp32Bits);
  const auto bits = __builtin_bit_cast(uint64_t, static_cast<double>(total));
  const auto kept = __builtin_bit_cast(double, bits& kKept);
  return cut_to_fp32(kept * power_of_two(largest - fraction));
}

struct WarpMmaLane {
  float* d;
  const uint32_t* a;
  uint32_t b[2];
};

// The operands of a warp as numbers.
struct WarpMmaNumbers {
  MmaNumber a[16][16], b[8][16];
};
static_assert(sizeof(WarpMmaNumbers) <= sizeof(Machine::scratch), "scratch is too small");

// Adds the products of 16 elements.
MOEJIT_DEVICE float add_16_products(const sim::MmaAddition& mma, const MmaNumber* a,
                                    const MmaNumber* b, float c) {
  if (mma.products == 16) return add_products<16>(mma.fraction, a, b, c);
  return add_products<8>(mma.fraction, a + 8, b + 8, add_products<8>(mma.fraction, a, b, c));
}

template <typename Format>
MOEJIT_DEVICE void multiply_16x8(const sim::MmaAddition& mma, void* const* lanes,
                                 WarpMmaNumbers& numbers) {
  auto& [a, b] = numbers;
  for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane) {
    const auto* own = static_cast<const WarpMmaLane*>(lanes[lane]);
    const int32_t row = lane / 4, k = 2 * (lane % 4);
    for (int32_t half = 0; half < 2; ++half) {
      for (int32_t word = 0; word < 4; ++word)
        a[row + 8 * (word % 2)][k + 8 * (word / 2) + half] =
            Format::number((own->a[word] >> (16 * half)) & 0xffffu);
      for (int32_t word = 0; word < 2; ++word)
        b[row][k + 8 * word + half] = Format::number((own->b[word] >> (16 * half)) & 0xffffu);
    }
  }
  for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane) {
    float* d = static_cast<const WarpMmaLane*>(lanes[lane])->d;
    for (int32_t i = 0; i < 4; ++i)
      d[i] = add_16_products(mma, a[lane / 4 + 8 * (i / 2)], b[2 * (lane % 4) + i % 2], d[i]);
  }
}

template <typename Format>
MOEJIT_DEVICE void multiply_with_warp(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                      Site site) {
  WarpMmaLane own{d, a, {b0, b1}};
  Machine* m = machine();
  if (m->calls->meet(m, Collective::kMma, &own, site)) {
    multiply_16x8<Format>(m->mma, m->lanes, *reinterpret_cast<WarpMmaNumbers*>(m->scratch));
    m->calls->part(m);
  }
}
MOEJIT_DEVICE void mma_bf16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                            Site site = Site::here()) {
  multiply_with_warp<MmaBf16>(d, a, b0, b1, site);
}
MOEJIT_DEVICE void mma_f16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                           Site site = Site::here()) {
  multiply_with_warp<MmaF16>(d, a, b0, b1, site);
}

}  // namespace moejit::device::ptx
