// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/stage/input_row.cuh"
#include "moejit_device/stage/load.cuh"

namespace moejit::device {

// The load stage of rows of matrices, each of kSections parts of kSectionRows rows, which with
// kInterleaved alternate in the input. Uses input [matrices, kSections * kSectionRows, C] bf16, and
// skip [1] or null: where it is not 0, nothing is written.
template <int32_t kColumns_, int32_t kSections, int32_t kSectionRows, bool kInterleaved = false>
struct LoadMatrixRows : LoadRows<kColumns_> {
  using Rows = LoadRows<kColumns_>;

  MOEJIT_DEVICE static bool is_skipped(const RowChainParams& params) {
    const auto skip = ptx::global(params.skip);
    return skip && ptx::load(skip) != 0;
  }
  MOEJIT_DEVICE static Bf16Segment fetch(const RowChainParams& params,
                                         const SegmentPosition<kColumns_>& at) {
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
    return fetch_runs(input, at, input_row<kSections, kSectionRows, kInterleaved>(at.row),
                      at.is_real());
  }
};

}  // namespace moejit::device
