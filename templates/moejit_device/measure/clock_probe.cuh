// SPDX-License-Identifier: Apache-2.0
#pragma once

// Clocks of an SM and nanoseconds of the GPU's timer between two ticks of the timer. Both readings
// of the clock follow a tick at the same distance, so that the length of the timer's steps does not
// matter.

#include "moejit_device/params/measure_params.h"
#include "moejit_device/ptx/clock.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

MOEJIT_KERNEL(1, 1, moejit_clock_probe, ClockProbeParams) {
  constexpr uint64_t kNanoseconds = 10000;  // at least so many between the ticks
  const uint64_t before = ptx::global_nanoseconds();
  uint64_t first = before;
  while (first == before) first = ptx::global_nanoseconds();
  const uint64_t first_cycle = ptx::sm_clock();
  uint64_t last = first;
  while (last - first < kNanoseconds) last = ptx::global_nanoseconds();
  const uint64_t cycles = ptx::sm_clock() - first_cycle;
  ptx::store(ptx::global(params.sample), cycles);
  ptx::store(ptx::global(params.sample) + 1, last - first);
}

}  // namespace moejit::device
