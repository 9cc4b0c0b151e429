// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/async_copy.cuh.

#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE void copy_async_16(SharedPtr<Bytes16> destination, GlobalPtr<const Bytes16> source,
                                 bool valid, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->copy_async(m, destination.address, valid ? source.address : nullptr, 16, site);
}

MOEJIT_DEVICE void copy_operand_async_16(SharedPtr<Bytes16> destination,
                                         GlobalPtr<const Bytes16> source, bool valid,
                                         Site site = Site::here()) {
  Machine* m = machine();
  m->calls->copy_operand_async(m, destination.address, valid ? source.address : nullptr, 16, site);
}

MOEJIT_DEVICE void copy_async_4(SharedPtr<float> destination, GlobalPtr<const float> source,
                                bool valid, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->copy_async(m, destination.address, valid ? source.address : nullptr, 4, site);
}

MOEJIT_DEVICE void commit_async_copies() {
  Machine* m = machine();
  m->calls->commit_async_copies(m);
}

template <int32_t kPending>
MOEJIT_DEVICE void wait_async_copies() {
  static_assert(kPending >= 0, "number of groups");
  Machine* m = machine();
  m->calls->wait_async_copies(m, kPending);
}

}  // namespace moejit::device::ptx
