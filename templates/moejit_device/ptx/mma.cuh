// SPDX-License-Identifier: Apache-2.0
#pragma once

// Warp-wide matrix fragments: ldmatrix and mma.sync. Every lane must call.

#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

// Four 8x16-byte matrices; lane l gives the address of row (l % 8) of matrix (l / 8), 16-byte
// aligned. Lane l receives bytes [4 * (l % 4), +4) of row l / 4 of each matrix.
struct MatrixFragments {
  uint32_t word[4];
};

MOEJIT_DEVICE MatrixFragments load_matrices(SharedPtr<Bytes16> row) {
  MatrixFragments f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.word[0]), "=r"(f.word[1]), "=r"(f.word[2]), "=r"(f.word[3])
               : "r"(row.address)
               : "memory");
  return f;
}

// d[16, 8] += a[16, 32] * b[8, 32]^T on e4m3 with fp32 accumulation. Lane l holds
//   a: word 0 row l/4, bytes 4(l%4)+..3; word 1 row l/4+8; words 2, 3 the same with bytes +16
//   b: word 0 row (column of d) l/4, bytes 4(l%4)+..3; word 1 bytes +16
//   d: [l/4, 2(l%4)], [l/4, 2(l%4)+1], [l/4+8, 2(l%4)], [l/4+8, 2(l%4)+1]
MOEJIT_DEVICE void mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4],
                                     const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace moejit::device::ptx
