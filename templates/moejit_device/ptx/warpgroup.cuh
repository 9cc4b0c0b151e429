// SPDX-License-Identifier: Apache-2.0
#pragma once

// A warpgroup is four warps, the first of them with an index divisible by four.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

inline constexpr int32_t kWarpgroupThreads = 128;

// Returns the warpgroup's index, which the compiler knows to be the same in all lanes.
MOEJIT_DEVICE int32_t warpgroup_index() {
  return __shfl_sync(0xffffffffu, thread_index() / kWarpgroupThreads, 0);
}

// Gives registers of each thread back to the SM, or waits for some and takes them. All warps of a
// warpgroup call. A thread holds kRegisters afterwards: a multiple of 8 from 24 to 240. Until then
// it holds what the kernel was compiled with.
template <int32_t kRegisters>
MOEJIT_DEVICE void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int32_t kRegisters>
MOEJIT_DEVICE void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace moejit::device::ptx
