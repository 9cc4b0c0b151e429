// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/system_memory.cuh. A thread that waits for a flag is
// suspended until the flag changes; so is one that reads a flag again and again.

#include "moejit_device/ptx/clock.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE uint32_t load_acquire_system(GlobalPtr<const uint32_t> flag,
                                           Site site = Site::here()) {
  Machine* m = machine();
  return m->calls->load_flag(m, flag.address, site);
}

MOEJIT_DEVICE void store_release_system(GlobalPtr<uint32_t> flag, uint32_t value,
                                        Site site = Site::here()) {
  Machine* m = machine();
  m->calls->store_flag(m, flag.address, value, true, site);
}

MOEJIT_DEVICE void store_relaxed_system(GlobalPtr<uint32_t> flag, uint32_t value,
                                        Site site = Site::here()) {
  Machine* m = machine();
  m->calls->store_flag(m, flag.address, value, false, site);
}

MOEJIT_DEVICE void store_release_own(GlobalPtr<uint32_t> flag, uint32_t value,
                                     Site site = Site::here()) {
  Machine* m = machine();
  m->calls->check_own_flag(m, flag.address, site);
  m->calls->store_flag(m, flag.address, value, true, site);
}

MOEJIT_DEVICE uint32_t fetch_add_ordered(GlobalPtr<uint32_t> flag, uint32_t value,
                                         Site site = Site::here()) {
  Machine* m = machine();
  return m->calls->add_to_flag(m, flag.address, value, site);
}

MOEJIT_DEVICE void fence_system() {
  Machine* m = machine();
  m->calls->fence_system(m);
}

template <typename T>
MOEJIT_DEVICE T load_peer_data(GlobalPtr<const T> pointer, Site site = Site::here()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes");
  return load(pointer, site);
}

MOEJIT_DEVICE bool has_reached(uint32_t value, uint32_t wanted) {
  return static_cast<int32_t>(value - wanted) >= 0;
}
MOEJIT_DEVICE uint32_t wait_system(GlobalPtr<const uint32_t> flag, uint32_t wanted,
                                   uint64_t deadline, Site site = Site::here()) {
  Machine* m = machine();
  return m->calls->wait_flag(m, flag.address, wanted, deadline, site);
}
MOEJIT_DEVICE uint32_t wait_own(GlobalPtr<const uint32_t> flag, uint32_t wanted,
                                Site site = Site::here()) {
  Machine* m = machine();
  m->calls->check_own_flag(m, flag.address, site);
  return m->calls->wait_flag(m, flag.address, wanted, 0, site);
}

}  // namespace moejit::device::ptx
