// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/reduce.cuh.

#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE uint32_t max_of_warp(uint32_t value, Site site = Site::here()) {
  for (int32_t mask = 16; mask > 0; mask /= 2) {
    const uint32_t other = shuffle_xor(value, mask, site);
    if (other > value) value = other;
  }
  return value;
}

MOEJIT_DEVICE void atomic_add(GlobalPtr<int32_t> pointer, int32_t value, Site site = Site::here()) {
  Machine* m = machine();
  void* sum = m->calls->access_global(m, pointer.address, 4, Access::kAtomic, site);
  __atomic_fetch_add(static_cast<int32_t*>(sum), value, __ATOMIC_RELAXED);
}

}  // namespace moejit::device::ptx
