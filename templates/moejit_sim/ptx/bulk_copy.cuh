// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/bulk_copy.cuh.

#include "moejit_device/ptx/tensor_copy.cuh"

namespace moejit::device::ptx {

MOEJIT_DEVICE void store_bulk(GlobalPtr<Bytes16> destination, SharedPtr<Bytes16> source,
                              int32_t bytes, Site site = Site::here()) {
  Machine* m = machine();
  m->calls->store_bulk(m, destination.address, source.address, static_cast<uint32_t>(bytes), site);
}

MOEJIT_DEVICE void commit_bulk_stores() { commit_tensor_stores(); }

// Here, too, nothing has reached global memory yet.
template <int32_t kPending>
MOEJIT_DEVICE void wait_bulk_stores_read() {
  wait_tensor_stores_read<kPending>();
}

template <int32_t kPending>
MOEJIT_DEVICE void wait_bulk_stores() {
  wait_tensor_stores<kPending>();
}

}  // namespace moejit::device::ptx
