// SPDX-License-Identifier: Apache-2.0
#pragma once

// Arithmetic on words of two bf16. Round to nearest even; subnormal numbers count.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE uint32_t multiply_bf16_pairs(uint32_t a, uint32_t b) {
  uint32_t products;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(products) : "r"(a), "r"(b));
  return products;
}

// Returns a - b.
MOEJIT_DEVICE uint32_t subtract_bf16_pairs(uint32_t a, uint32_t b) {
  uint32_t differences;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(differences) : "r"(a), "r"(b));
  return differences;
}

}  // namespace moejit::device::ptx
