// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/clock.cuh: the host's monotonic clock, and an SM of
// 1 GHz. The simulator's time says nothing about a GPU's; a kernel that waits for time ends.

#include "moejit_device/ptx/thread.cuh"

#include <ctime>

namespace moejit::device::ptx {

MOEJIT_DEVICE uint64_t global_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

MOEJIT_DEVICE uint64_t sm_clock() { return global_nanoseconds(); }

}  // namespace moejit::device::ptx
