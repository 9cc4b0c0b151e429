// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/barrier.cuh.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE void sync_cta(Site site = Site::here()) {
  Machine* m = machine();
  m->calls->sync_cta(m, site);
}

MOEJIT_DEVICE void sync_cluster(Site site = Site::here()) {
  Machine* m = machine();
  m->calls->sync_cluster(m, site);
}

MOEJIT_DEVICE void sync_named(int32_t barrier, int32_t threads, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->sync_named(m, barrier, threads, site);
}

MOEJIT_DEVICE void sync_warp(Site site = Site::here()) {
  Machine* m = machine();
  m->calls->sync_warp(m, site);
}

}  // namespace moejit::device::ptx
