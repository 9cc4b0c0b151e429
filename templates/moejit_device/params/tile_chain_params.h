// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// Matrices of [sections * section_rows, C], C columns, S = sections * ceil(section_rows / 128).
struct TileChainParams {
  const Bf16* input;        // [matrices, sections * section_rows, C]
  E4m3* output;             // likewise
  float* output_scale_inv;  // [matrices, S, ceil(C / 128)]
  int64_t matrices;         // may be 0
};

}  // namespace moejit::device
