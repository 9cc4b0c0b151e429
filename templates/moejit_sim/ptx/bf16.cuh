// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/bf16.cuh: the same bits as the GPU.

#include "moejit_device/ptx/convert.cuh"

namespace moejit::device::ptx {

// Results that fp32 does not hold exactly are rounded twice: subnormal products, and differences of
// numbers that are far apart.
MOEJIT_DEVICE uint32_t multiply_bf16_pairs(uint32_t a, uint32_t b) {
  return bf16_pair(float_from_bf16_low(a) * float_from_bf16_low(b),
                   float_from_bf16_high(a) * float_from_bf16_high(b));
}

MOEJIT_DEVICE uint32_t subtract_bf16_pairs(uint32_t a, uint32_t b) {
  return bf16_pair(float_from_bf16_low(a) - float_from_bf16_low(b),
                   float_from_bf16_high(a) - float_from_bf16_high(b));
}

}  // namespace moejit::device::ptx
