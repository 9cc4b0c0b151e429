// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of moejit_device/ptx/matrix_store.cuh where the GPU has no stmatrix: lanes learn
// each other's addresses and store their own elements.

#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/mma.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE void store_matrices(SharedPtr<Bytes16> row, const MatrixFragments& f) {
  const int32_t lane = lane_index();
#pragma unroll
  for (int32_t matrix = 0; matrix < 4; ++matrix) {
    const SharedPtr<uint32_t> to{shuffle(row.address, 8 * matrix + lane / 4)};
    store(to + lane % 4, f.word[matrix]);
  }
}

MOEJIT_DEVICE void store_matrices_transposed(SharedPtr<Bytes16> row, const MatrixFragments& f) {
  const int32_t lane = lane_index();
#pragma unroll
  for (int32_t matrix = 0; matrix < 4; ++matrix) {
#pragma unroll
    for (int32_t half = 0; half < 2; ++half) {
      const SharedPtr<uint16_t> to{shuffle(row.address, 8 * matrix + 2 * (lane % 4) + half)};
      store(to + lane / 4, static_cast<uint16_t>(f.word[matrix] >> (16 * half)));
    }
  }
}

}  // namespace moejit::device::ptx
