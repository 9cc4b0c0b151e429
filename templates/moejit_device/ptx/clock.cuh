// SPDX-License-Identifier: Apache-2.0
#pragma once

// Two clocks: cycles of the SM that the thread runs on, and the GPU's timer in nanoseconds. The
// SM's frequency changes with load and power, the timer's does not; the timer moves in steps of up
// to about a microsecond. Neither is moved across memory accesses or the other.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE uint64_t sm_clock() {
  uint64_t cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
}

MOEJIT_DEVICE uint64_t global_nanoseconds() {
  uint64_t nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds)::"memory");
  return nanoseconds;
}

}  // namespace moejit::device::ptx
