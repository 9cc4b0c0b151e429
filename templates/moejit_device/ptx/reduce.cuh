// SPDX-License-Identifier: Apache-2.0
#pragma once

// The largest value of a warp, and sums of integers over threads, whose order does not matter.

#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device::ptx {

// The largest value of all lanes. Every lane must call.
MOEJIT_DEVICE uint32_t max_of_warp(uint32_t value) {
  uint32_t largest;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(largest) : "r"(value));
  return largest;
}

MOEJIT_DEVICE void atomic_add(GlobalPtr<int32_t> pointer, int32_t value) {
  asm volatile("red.global.add.u32 [%0], %1;" ::"l"(pointer.address), "r"(value) : "memory");
}

}  // namespace moejit::device::ptx
