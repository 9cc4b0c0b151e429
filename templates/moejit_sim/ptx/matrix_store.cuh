// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/matrix_store.cuh.

#include "moejit_device/ptx/mma.cuh"

namespace moejit::device::ptx {

struct MatrixStoreLane {
  void* row;
  const uint32_t* words;
};

MOEJIT_DEVICE void store_matrices(SharedPtr<Bytes16> row, const MatrixFragments& f,
                                  Site site = Site::here()) {
  Machine* m = machine();
  MatrixStoreLane own{m->calls->access_shared(m, row.address, 16, Access::kWarpWrite, site),
                      f.word};
  if (m->calls->meet(m, Collective::kStoreMatrices, &own, site)) {
    for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane) {
      const uint32_t* words = static_cast<MatrixStoreLane*>(m->lanes[lane])->words;
      for (int32_t matrix = 0; matrix < 4; ++matrix) {
        const auto* taker = static_cast<MatrixStoreLane*>(m->lanes[8 * matrix + lane / 4]);
        auto* bytes = static_cast<unsigned char*>(taker->row);
        __builtin_memcpy(bytes + 4 * (lane % 4), &words[matrix], 4);
      }
    }
    m->calls->part(m);
  }
}

MOEJIT_DEVICE void store_matrices_transposed(SharedPtr<Bytes16> row, const MatrixFragments& f,
                                             Site site = Site::here()) {
  Machine* m = machine();
  MatrixStoreLane own{m->calls->access_shared(m, row.address, 16, Access::kWarpWrite, site),
                      f.word};
  if (m->calls->meet(m, Collective::kStoreMatrices, &own, site)) {
    for (int32_t lane = 0; lane < sim::kWarpLanes; ++lane) {
      const uint32_t* words = static_cast<MatrixStoreLane*>(m->lanes[lane])->words;
      for (int32_t matrix = 0; matrix < 4; ++matrix) {
        for (int32_t half = 0; half < 2; ++half) {
          const int32_t taker = 8 * matrix + 2 * (lane % 4) + half;
          auto* bytes =
              static_cast<unsigned char*>(static_cast<MatrixStoreLane*>(m->lanes[taker])->row);
          const auto element = static_cast<uint16_t>(words[matrix] >> (16 * half));
          __builtin_memcpy(bytes + 2 * (lane / 4), &element, 2);
        }
      }
    }
    m->calls->part(m);
  }
}

}  // namespace moejit::device::ptx
