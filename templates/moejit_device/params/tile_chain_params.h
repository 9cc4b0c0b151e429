// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// Matrices of [R, C], R = sections * section_rows rows and C columns; S = sections *
// ceil(section_rows / 128), Cb = ceil(C / 128); R' = R, or of several sections 128 S. Data is
// row-major and 16-byte aligned. The column-wise fields are read only where that operand is
// written too.
struct TileChainParams {
  const Bf16* input;                // [matrices, R, C]; of separate parts [matrices, R / 2, C]
  E4m3* output;                     // [matrices, R, C]; with its scales null in chains that write
                                    // columns alone
  float* output_scale_inv;          // [matrices, S, Cb]
  int64_t matrices;                 // may be 0
  E4m3* output_colwise;             // [matrices, C, R']: the same bytes, transposed, and zeros that
                                    // fill each of several sections up
  float* output_colwise_scale_inv;  // [matrices, Cb, S]: the same scales, transposed
  const uint32_t* skip;             // [1] or null; where it is not 0, nothing is written
  const float* expert_scales;       // [matrices], where a matrix has one scale: what values are
                                    // multiplied by; then the scales above are not written
  float* amax;                      // [columns of a state], chains that record: not negative; is
                                    // raised to the largest magnitude of each matrix
  const Bf16* input_up;             // [matrices, R / 2, C]: the second of two separate parts
};

}  // namespace moejit::device
