// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/mbarrier.cuh.

#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

using Mbarrier = SharedPtr<uint64_t>;

MOEJIT_DEVICE void init_mbarrier(Mbarrier barrier, int32_t arrivals, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->init_mbarrier(m, barrier.address, arrivals, site);
}

MOEJIT_DEVICE void fence_mbarrier_init() {
  Machine* m = machine();
  m->calls->fence_mbarrier_init(m);
}

MOEJIT_DEVICE void arrive(Mbarrier barrier, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->arrive(m, barrier.address, 0, site);
}

MOEJIT_DEVICE void arrive_in_cluster(Mbarrier barrier, int32_t cta, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->arrive_in_cluster(m, barrier.address, cta, site);
}

MOEJIT_DEVICE void arrive_expecting(Mbarrier barrier, int32_t bytes, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->arrive(m, barrier.address, bytes, site);
}

// Has its contract in moejit_ampere/ptx/mbarrier.cuh.
MOEJIT_DEVICE void arrive_when_copied(Mbarrier barrier, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->arrive_when_copied(m, barrier.address, site);
}

MOEJIT_DEVICE void wait(Mbarrier barrier, uint32_t parity, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->wait(m, barrier.address, parity, site);
}

}  // namespace moejit::device::ptx
