// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/mma.cuh.
//
// The model of mma: the 32 products are exact and so is their sum (e4m3 products are multiples of
// 2^-18 below 2^18, so a double holds any sum of 32); the accumulator is added in double and the
// result rounded once more, to fp32. The tensor cores keep fewer bits of small products beside
// large ones; where all partial sums fit in their width, as with small integers, both agree.

#include "moejit_device/ptx/memory.cuh"
#include "moejit_sim/e4m3_table.h"

namespace moejit::device::ptx {

struct MatrixFragments {
  uint32_t word[4];
};

struct MatrixLane {
  const void* row;
  uint32_t* words;
};

MOEJIT_DEVICE MatrixFragments load_matrices(SharedPtr<Bytes16> row, Site site = Site::here()) {
  Machine* m = machine();
  MatrixFragments f;
  MatrixLane own{m->calls->access_shared(m, row.address, 16, Access::kWarpRead, site), f.word};
  if (m->calls->meet(m, Collective::kLoadMatrices, &own, site)) {
    for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane) {
      uint32_t* words = static_cast<MatrixLane*>(m->lanes[lane])->words;
      for (int32_t matrix = 0; matrix < 4; ++matrix) {
        const auto* giver = static_cast<MatrixLane*>(m->lanes[8 * matrix + lane / 4]);
        const auto* bytes = static_cast<const unsigned char*>(giver->row);
        __builtin_memcpy(&words[matrix], bytes + 4 * (lane % 4), 4);
      }
    }
    m->calls->part(m);
  }
  return f;
}

struct MmaLane {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

using sim::Double4;

// The operands of a warp as numbers.
struct MmaOperands {
  Double4 b[32][2];  // [k][column of d]
  double a[16][32];
};
static_assert(sizeof(MmaOperands) <= sizeof(Machine::scratch), "scratch is too small");

MOEJIT_DEVICE void decode_operands(void* const* lanes, MmaOperands& operands) {
  auto* b = reinterpret_cast<double*>(&operands.b);
  for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane) {
    const auto* own = static_cast<const MmaLane*>(lanes[lane]);
    const int32_t row = lane / 4;
    const int32_t column = 4 * (lane % 4);
    for (int32_t word = 0; word < 4; ++word) {
      double* to = &operands.a[row + 8 * (word % 2)][column + 16 * (word / 2)];
      for (int32_t i = 0; i < 4; ++i) to[i] = sim::kE4m3.value[(own->a[word] >> (8 * i)) & 0xff];
    }
    for (int32_t word = 0; word < 2; ++word) {
      double* to = b + 8 * (column + 16 * word) + row;
      for (int32_t i = 0; i < 4; ++i)
        to[8 * i] = sim::kE4m3.value[(own->b[word] >> (8 * i)) & 0xff];
    }
  }
}

// Sums of products for kRows rows of d from `row` on: enough chains to hide the adder's latency.
template <int32_t kRows>
MOEJIT_DEVICE void multiply_rows(const MmaOperands& operands, int32_t row, double (*sums)[8]) {
  Double4 sum[kRows][2] = {};
  for (int32_t k = 0; k < 32; ++k) {
    for (int32_t r = 0; r < kRows; ++r) {
      const double a = operands.a[row + r][k];
      sum[r][0] += a * operands.b[k][0];
      sum[r][1] += a * operands.b[k][1];
    }
  }
  __builtin_memcpy(sums + row, sum, sizeof(sum));
}

MOEJIT_DEVICE void accumulate(float& d, double sum) {
  const float value = static_cast<float>(static_cast<double>(d) + sum);
  d = value == value ? value : __builtin_bit_cast(float, 0x7fffffffu);
}

MOEJIT_DEVICE void multiply_warp(Machine* m) {
  auto& operands = *reinterpret_cast<MmaOperands*>(m->scratch);
  double sums[16][8];
  decode_operands(m->lanes, operands);
  for (int32_t row = 0; row < 16; row += 4) multiply_rows<4>(operands, row, sums);
  for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane) {
    float* d = static_cast<MmaLane*>(m->lanes[lane])->d;
    const double* upper = &sums[lane / 4][2 * (lane % 4)];
    const double* lower = &sums[lane / 4 + 8][2 * (lane % 4)];
    accumulate(d[0], upper[0]);
    accumulate(d[1], upper[1]);
    accumulate(d[2], lower[0]);
    accumulate(d[3], lower[1]);
  }
}

MOEJIT_DEVICE void mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                     Site site = Site::here()) {
  MmaLane own{d, a, b};
  Machine* m = machine();
  if (m->calls->meet(m, Collective::kMma, &own, site)) {
    multiply_warp(m);
    m->calls->part(m);
  }
}

}  // namespace moejit::device::ptx
