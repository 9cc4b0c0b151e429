// SPDX-License-Identifier: Apache-2.0
#pragma once

// mbarriers: counters in shared memory that threads wait for. A phase is complete when all its
// arrivals have come and all bytes that were announced for it have been copied; the next one then
// begins with the same number of arrivals. (PTX ISA, "Parallel Synchronization: mbarrier".)

#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

using Mbarrier = SharedPtr<uint64_t>;

// Initializes a barrier. Called by one thread before any other use; followed by
// fence_mbarrier_init() and a CTA barrier.
MOEJIT_DEVICE void init_mbarrier(Mbarrier barrier, int32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier.address), "r"(arrivals)
               : "memory");
}

// Makes this thread's init_mbarrier() visible to tensor copies.
MOEJIT_DEVICE void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives once. What this thread did before is visible to whoever waits for the phase.
MOEJIT_DEVICE void arrive(Mbarrier barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier.address) : "memory");
}

// Arrives once at the barrier that CTA `cta` of the cluster, counted from 0, has at this place of
// its shared memory. That CTA must not have ended.
MOEJIT_DEVICE void arrive_in_cluster(Mbarrier barrier, int32_t cta) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(barrier.address),
      "r"(cta)
      : "memory");
}

// Arrives once and announces `bytes` of tensor copies which complete on this barrier.
MOEJIT_DEVICE void arrive_expecting(Mbarrier barrier, int32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier.address),
               "r"(bytes)
               : "memory");
}

// Waits until the phase of this parity is complete; phases have parity 0, 1, 0, ... from the first
// on. At most one phase may complete between a phase and a wait for it. Waiting for parity 1 on a
// new barrier returns at once.
MOEJIT_DEVICE void wait(Mbarrier barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred complete;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n"
      "@!complete bra again;\n"
      "}\n" ::"r"(barrier.address),
      "r"(parity)
      : "memory");
}

}  // namespace moejit::device::ptx
