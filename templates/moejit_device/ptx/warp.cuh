// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exchange between the 32 lanes of a warp. Every lane must call; they meet here.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

// Value of lane `source`.
template <typename T>
MOEJIT_DEVICE T shuffle(T value, int32_t source) {
  return __shfl_sync(0xffffffffu, value, source);
}

// Value of lane (own lane ^ mask).
template <typename T>
MOEJIT_DEVICE T shuffle_xor(T value, int32_t mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

// Value of lane (own lane - distance), own value below it.
template <typename T>
MOEJIT_DEVICE T shuffle_up(T value, int32_t distance) {
  return __shfl_up_sync(0xffffffffu, value, static_cast<uint32_t>(distance));
}

// Bit i: the predicate of lane i.
MOEJIT_DEVICE uint32_t ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }

// Bit i: lane i holds the same value as this lane.
MOEJIT_DEVICE uint32_t match_any(int32_t value) { return __match_any_sync(0xffffffffu, value); }

MOEJIT_DEVICE int32_t population_count(uint32_t bits) { return __popc(bits); }

}  // namespace moejit::device::ptx
