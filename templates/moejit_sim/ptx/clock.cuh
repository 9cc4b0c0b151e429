// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/clock.cuh: the host's monotonic clock, and an SM of
// 1 GHz. The simulator's time says nothing about a GPU's; a kernel that waits for time ends. In a
// group of ranks time is virtual (docs/simulator.md).

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE uint64_t global_nanoseconds(Site site = Site::here()) {
  Machine* m = machine();
  return m->calls->global_nanoseconds(m, site);
}

MOEJIT_DEVICE uint64_t sm_clock(Site site = Site::here()) { return global_nanoseconds(site); }

}  // namespace moejit::device::ptx
