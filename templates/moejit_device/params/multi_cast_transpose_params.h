// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// One tensor of a list, in device memory: X [R, C] in the kernel's input format becomes its cast
// and the cast's transpose in the kernel's FP8 format. Addresses are multiples of their element's
// size; multiples of 16 and R and C that are too are faster. Without elements, no address is used.
struct alignas(16) CastTransposeTensor {
  const void* input;        // [R, C]
  uint8_t* output;          // [R, C]
  uint8_t* output_colwise;  // [C, R]: the same bytes, transposed
  const float* scale;       // [1], what values are multiplied by; null: 1
  float* amax;       // [1], not negative: is raised to the largest magnitude; null: not wanted
  float* scale_inv;  // [1]: 1 / scale; null: not wanted
  int64_t rows;      // R, may be 0
  int64_t columns;   // C, may be 0
};

// N tensors. The list is read when the kernel runs.
struct MultiCastTransposeParams {
  const CastTransposeTensor* tensors;  // [N]
  const int64_t* tile_ends;            // [N]: 128x128 tiles of a tensor and all before it
  const uint32_t* skip;                // [1] or null; where it is not 0, nothing is written
  int64_t count;                       // N, may be 0
};

}  // namespace moejit::device
