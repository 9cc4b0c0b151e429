// SPDX-License-Identifier: Apache-2.0
#pragma once

// Copies of bytes that follow each other, by the tensor memory accelerator but without a tensor
// map: one thread starts each. load_bulk(), from global to shared memory, is in tensor_copy.cuh and
// completes on an mbarrier. Those from shared to global memory, of this rank or of a peer, complete
// in groups of a thread, which tensor stores of the thread belong to as well. (PTX ISA, "Data
// Movement: cp.async.bulk".)
//
// Shared memory that threads wrote with ordinary stores needs fence_proxy_async() by each of them,
// then a barrier, before a copy reads it.

#include "moejit_device/ptx/tensor_copy.cuh"

namespace moejit::device::ptx {

// Starts a copy of `bytes`, a multiple of 16, as both addresses are.
MOEJIT_DEVICE void store_bulk(GlobalPtr<Bytes16> destination, SharedPtr<Bytes16> source,
                              int32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination.address),
      "r"(source.address), "r"(bytes)
      : "memory");
}

// Closes the group of stores that this thread started since the last call.
MOEJIT_DEVICE void commit_bulk_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but this thread's last `kPending` groups have read their shared memory, which may
// then be written again. Global memory may still lack the bytes: no flag may tell of them yet.
template <int32_t kPending>
MOEJIT_DEVICE void wait_bulk_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Waits until all but the last `kPending` groups are complete, and visible to this thread, whose
// store_release_system() may then tell a peer of them. Before a CTA ends its groups must at least
// have read.
template <int32_t kPending>
MOEJIT_DEVICE void wait_bulk_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace moejit::device::ptx
