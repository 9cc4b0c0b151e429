// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of a warp by mma.sync on f16 and bf16 (PTX ISA, "Warp-level Matrix Instructions").
// Every lane must call.

#include "moejit_device/ptx/mma.cuh"

namespace moejit::device::ptx {

// Loads four matrices of an operand as load_matrices() does. Rows that nobody has written are
// allowed: they give sums that nobody reads.
MOEJIT_DEVICE MatrixFragments load_operand(SharedPtr<Bytes16> row) { return load_matrices(row); }

// As load_operand(), with matrices of 8x8 2-byte elements, each transposed on its way: lane l
// receives the elements of rows 2 * (l % 4) and the next in column l / 4.
MOEJIT_DEVICE MatrixFragments load_operand_transposed(SharedPtr<Bytes16> row) {
  MatrixFragments f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.word[0]), "=r"(f.word[1]), "=r"(f.word[2]), "=r"(f.word[3])
               : "r"(row.address)
               : "memory");
  return f;
}

// d[16, 8] += a[16, 16] * b[8, 16]^T with fp32 accumulation. Lane l holds
//   a: word 0 row l/4, elements 2(l%4)..+1; word 1 row l/4+8; words 2, 3 the same 8 elements on
//   b: word 0 row (column of d) l/4, elements 2(l%4)..+1; word 1 8 elements on
//   d: [l/4, 2(l%4)], [l/4, 2(l%4)+1], [l/4+8, 2(l%4)], [l/4+8, 2(l%4)+1]
MOEJIT_DEVICE void mma_bf16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
MOEJIT_DEVICE void mma_f16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace moejit::device::ptx
