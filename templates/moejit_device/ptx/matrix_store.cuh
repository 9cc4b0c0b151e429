// SPDX-License-Identifier: Apache-2.0
#pragma once

// Warp-wide stores of matrix fragments: stmatrix. Every lane must call.

#include "moejit_device/ptx/mma.cuh"

namespace moejit::device::ptx {

// The reverse of load_matrices(): lane l gives bytes [4 * (l % 4), +4) of row l / 4 of each matrix,
// and the address of row (l % 8) of matrix (l / 8).
MOEJIT_DEVICE void store_matrices(SharedPtr<Bytes16> row, const MatrixFragments& f) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row.address),
      "r"(f.word[0]), "r"(f.word[1]), "r"(f.word[2]), "r"(f.word[3])
      : "memory");
}

// Stores matrices of 8x8 2-byte elements, each transposed on its way: a lane holds a row of eight
// elements, which becomes a column.
MOEJIT_DEVICE void store_matrices_transposed(SharedPtr<Bytes16> row, const MatrixFragments& f) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row.address),
      "r"(f.word[0]), "r"(f.word[1]), "r"(f.word[2]), "r"(f.word[3])
      : "memory");
}

}  // namespace moejit::device::ptx
