// SPDX-License-Identifier: Apache-2.0
#pragma once

// The columns of a matrix in blocks of 128 bytes, as wgrad takes its operands. A warp takes a row.

#include "moejit_device/params/measure_params.h"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

MOEJIT_KERNEL(kMeasureThreads, 4, moejit_column_blocks, ColumnBlocksParams) {
  const int64_t row = int64_t{ptx::cta_index()} * (kMeasureThreads / 32) + ptx::warp_index();
  if (row >= params.rows) return;
  const auto from = ptx::global(params.matrix) + row * (params.columns / 4);
  const auto to = ptx::global(params.blocks);
  for (int64_t block = 0; block < params.columns / 128; ++block) {
    ptx::store(to + ((block * params.rows + row) * 32 + ptx::lane_index()),
               ptx::load(from + (block * 32 + ptx::lane_index())));
  }
}

}  // namespace moejit::device
