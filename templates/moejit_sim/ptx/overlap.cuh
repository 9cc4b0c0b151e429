// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/overlap.cuh. The kernel before has ended, but what it
// touched is out of bounds until the thread waits (docs/simulator.md).

#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE void await_kernel_before(Site site = Site::here()) {
  Machine* m = machine();
  m->calls->await_kernel_before(m, site);
}

MOEJIT_DEVICE void start_kernel_behind(Site site = Site::here()) {
  Machine* m = machine();
  m->calls->start_kernel_behind(m, site);
}

MOEJIT_DEVICE int32_t load_past_l1(GlobalPtr<const int32_t> pointer, Site site = Site::here()) {
  return load(pointer, site);
}
MOEJIT_DEVICE int64_t load_past_l1(GlobalPtr<const int64_t> pointer, Site site = Site::here()) {
  return load(pointer, site);
}

}  // namespace moejit::device::ptx
