// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of moejit_device/ptx/bf16.cuh before Hopper, which alone multiplies and subtracts
// words of two bf16. These GPUs have fma.bf16x2, which rounds once: a * b - 0 and a - b * 1 have
// the same bits, also for zeros.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE uint32_t multiply_bf16_pairs(uint32_t a, uint32_t b) {
  constexpr uint32_t kMinusZeros = 0x80008000u;
  uint32_t products;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(products) : "r"(a), "r"(b), "r"(kMinusZeros));
  return products;
}

MOEJIT_DEVICE uint32_t subtract_bf16_pairs(uint32_t a, uint32_t b) {
  constexpr uint32_t kMinusOnes = 0xbf80bf80u;
  uint32_t differences;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(differences) : "r"(b), "r"(kMinusOnes), "r"(a));
  return differences;
}

}  // namespace moejit::device::ptx
