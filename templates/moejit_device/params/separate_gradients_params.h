// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/tensor_map.cuh"
#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// Tensors [E, rows, n] for two sections, gate and up. Matrix 2e of both is e of gate, 2e + 1 is e
// of up.
struct SectionMaps {
  TensorMap gate;
  TensorMap up;
};

// As ContractionGroupedGemmParams, where A has two sections and each has a D of its own.
struct SeparateGradientsParams {
  TensorMap a_map;
  TensorMap b_map;
  SectionMaps d_map;  // each D [E, rows of a section, n], boxes of 1 x 64 x 128 bytes, swizzled
  const float* a_scale_inv;
  const float* b_scale_inv;
  const int32_t* counts;
  const int32_t* offs;
  int64_t columns;
  uint64_t* elapsed;
  CallTokens call;
};

}  // namespace moejit::device
