// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/bytes.cuh.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE uint32_t select_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = (static_cast<uint64_t>(high) << 32) | low;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t choice = selector >> (4 * i);
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (choice & 7u))) & 0xffu;
    if ((choice & 8u) != 0) byte = (byte & 0x80u) != 0 ? 0xffu : 0u;
    result |= byte << (8 * i);
  }
  return result;
}

template <uint32_t kSelector>
MOEJIT_DEVICE uint32_t permute_bytes(uint32_t low, uint32_t high) {
  static_assert(kSelector <= 0xffffu, "four digits");
  return select_bytes(low, high, kSelector);
}

}  // namespace moejit::device::ptx
