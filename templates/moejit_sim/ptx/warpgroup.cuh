// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/warpgroup.cuh.

#include "moejit_device/ptx/warp.cuh"

namespace moejit::device::ptx {

inline constexpr int32_t kWarpgroupThreads = sim::kWarpgroupThreads;

MOEJIT_DEVICE int32_t warpgroup_index(Site site = Site::here()) {
  return shuffle(thread_index() / kWarpgroupThreads, 0, site);
}

template <int32_t kRegisters>
MOEJIT_DEVICE void release_registers(Site site = Site::here()) {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 240,
                "a multiple of 8 from 24 to 240");
  Machine* m = machine();
  m->calls->set_registers(m, kRegisters, false, site);
}
template <int32_t kRegisters>
MOEJIT_DEVICE void claim_registers(Site site = Site::here()) {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 240,
                "a multiple of 8 from 24 to 240");
  Machine* m = machine();
  m->calls->set_registers(m, kRegisters, true, site);
}

}  // namespace moejit::device::ptx
