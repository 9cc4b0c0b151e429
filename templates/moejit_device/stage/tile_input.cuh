// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/tile_chain_params.h"
#include "moejit_device/stage/input_row.cuh"
#include "moejit_device/stage/position.cuh"

namespace moejit::device {

// Fetches a segment of stacked matrices, each of kSections parts of kSectionRows rows. In memory
// the rows of a matrix's parts may alternate; or each of two parts is an input of its own,
// kSeparate.
template <int32_t kSections, int32_t kSectionRows, bool kInterleaved, bool kSeparate,
          int32_t kColumns>
MOEJIT_DEVICE Bf16Segment fetch_input(const TileChainParams& params,
                                      const SegmentPosition<kColumns>& at) {
  if constexpr (kSeparate) {
    static_assert(kSections == 2 && !kInterleaved, "gate and up");
    const int64_t section = at.row / kSectionRows;  // of all matrices
    const int64_t row = at.row - (section - section / 2) * kSectionRows;
    return fetch_runs(ptx::global(section % 2 == 0 ? params.input : params.input_up), at, row,
                      at.is_real());
  } else {
    return fetch_runs(ptx::global(params.input), at,
                      input_row<kSections, kSectionRows, kInterleaved>(at.row), at.is_real());
  }
}

}  // namespace moejit::device
