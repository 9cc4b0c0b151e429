// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// Matrices of N elements each, in pieces, M of a matrix. Data is 16-byte aligned.
struct MatrixAmaxParams {
  const Bf16* input;  // [matrices, N]
  float* output;      // [matrices, M]: the largest magnitude of each piece; NaN counts as nothing
  const uint32_t* skip;  // [1] or null; where it is not 0, nothing is written
  int64_t matrices;
};

}  // namespace moejit::device
