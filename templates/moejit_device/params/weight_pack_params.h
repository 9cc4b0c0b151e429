// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// Matrices of MXFP4 [rows, columns], as checkpoints have them, and their packed tiles
// (gemm/mxfp4_mainloop.cuh). Data is 16-byte aligned.
struct WeightPackParams {
  const uint8_t* input;            // [matrices, rows, columns / 2]: two E2M1 codes a byte
  const uint8_t* input_scale_inv;  // [matrices, rows, columns / 32] E8M0
  uint8_t* output;                 // [matrices, tiles of rows, tiles of columns, kPackedTileBytes]
  float* output_scale_inv;         // [matrices, tiles of rows, tiles of columns]
  uint32_t* status;                // [1], kStatusBadScale is or-ed in
};

}  // namespace moejit::device
