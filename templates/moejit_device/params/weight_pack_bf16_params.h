// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// Matrices of 4-bit codes [rows, columns], and their packed tiles (gemm/packed_bf16_tile.cuh). Data
// is 16-byte aligned.
struct WeightPackBf16Params {
  const uint8_t* input;            // [matrices, rows, columns / 2]: two codes a byte, the first low
  const uint8_t* input_scale_inv;  // of NVFP4: [matrices, rows, columns / 16] E4M3
                                   // of INT4: [matrices, rows, columns / 128] fp32
  const uint8_t* input_zero;       // of INT4: [matrices, rows, columns / 128]; else null
  uint8_t* output;   // [matrices, tiles of rows, tiles of columns, kPackedBf16TileBytes]
  uint32_t* status;  // [1], kStatusBadScale is or-ed in
};

}  // namespace moejit::device
