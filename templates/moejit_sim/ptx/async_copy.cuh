// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/async_copy.cuh.

#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE void copy_async_16(SharedPtr<Bytes16> destination, GlobalPtr<const Bytes16> source,
                                 bool valid, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->copy_async_16(m, destination.address, source.address, valid, site);
}

MOEJIT_DEVICE void commit_async_copies() {
  Machine* m = machine();
  m->calls->commit_async_copies(m);
}

template <int32_t kPending>
MOEJIT_DEVICE void wait_async_copies(Site site = Site::here()) {
  static_assert(kPending >= 0, "number of groups");
  Machine* m = machine();
  m->calls->wait_async_copies(m, kPending, site);
}

}  // namespace moejit::device::ptx
