// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bytes of registers.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

// Returns any four of the eight bytes of two words. Bytes 0 to 3 are in `low`, 4 to 7 in `high`,
// lowest first. Byte i of the result is the one that hexadecimal digit i of kSelector names; 8 more
// is that byte's highest bit in all eight places.
template <uint32_t kSelector>
MOEJIT_DEVICE uint32_t permute_bytes(uint32_t low, uint32_t high) {
  static_assert(kSelector <= 0xffffu, "four digits");
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "n"(kSelector));
  return result;
}

// Returns bytes as permute_bytes() does, whose digits are in the lower half of `selector`, 0 to 7.
MOEJIT_DEVICE uint32_t select_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

}  // namespace moejit::device::ptx
