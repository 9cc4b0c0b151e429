// SPDX-License-Identifier: Apache-2.0
#pragma once

// Zeros in the columns that fill up groups. A warp takes a row.

#include "moejit_device/params/measure_params.h"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

MOEJIT_KERNEL(kMeasureThreads, 4, moejit_pad_columns, PadColumnsParams) {
  const int64_t row = int64_t{ptx::cta_index()} * (kMeasureThreads / 32) + ptx::warp_index();
  if (row >= params.rows) return;
  const auto counts = ptx::global(params.counts);
  const auto offs = ptx::global(params.offs);
  const auto columns = ptx::global(params.matrix) + row * ptx::load(offs + params.groups);
  for (int64_t group = 0; group < params.groups; ++group) {
    const int32_t first = ptx::load(offs + group) + ptx::load(counts + group);
    const int32_t end = ptx::load(offs + (group + 1));
    for (int32_t column = first + ptx::lane_index(); column < end; column += 32) {
      ptx::store(columns + column, Bf16{});
    }
  }
}

}  // namespace moejit::device
