// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/tensor_map.cuh"

namespace moejit::device {

// B of a row-grouped GEMM where gate and up are tensors of their own, which are numbered as one
// tensor with gate before up in each matrix. A matrix of either has kRows numbers, those behind its
// last row included. The numbers are rows, or if B is MN-major the contraction. Gated swapped tiles
// have kGatedColumns columns of each.
template <int32_t kRows, int32_t kGatedColumns = 0>
struct SeparateWeights {
  TensorMap gate;  // [E * rows, k], boxes as of one B; of gated swapped tiles 8 rows x 128 bytes.
                   // If MN-major [E, rows, N], boxes of 1 x 64 x 64
  TensorMap up;    // likewise
};

}  // namespace moejit::device
