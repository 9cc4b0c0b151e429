// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/bytes.cuh.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

template <uint32_t kSelector>
MOEJIT_DEVICE uint32_t permute_bytes(uint32_t low, uint32_t high) {
  static_assert((kSelector & ~0x7777u) == 0, "four digits, each the number of a byte");
  const uint64_t bytes = (static_cast<uint64_t>(high) << 32) | low;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t source = (kSelector >> (4 * i)) & 7u;
    result |= static_cast<uint32_t>((bytes >> (8 * source)) & 0xffu) << (8 * i);
  }
  return result;
}

}  // namespace moejit::device::ptx
