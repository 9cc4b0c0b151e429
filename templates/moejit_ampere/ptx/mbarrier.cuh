// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of moejit_device/ptx/mbarrier.cuh in the instructions of GPUs before Hopper. Their
// mbarriers count arrivals alone, and a thread that waits asks again and again.

#include "moejit_device/ptx/memory.cuh"

namespace moejit::device::ptx {

using Mbarrier = SharedPtr<uint64_t>;

MOEJIT_DEVICE void init_mbarrier(Mbarrier barrier, int32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier.address), "r"(arrivals)
               : "memory");
}

// No copies of another proxy arrive.
MOEJIT_DEVICE void fence_mbarrier_init() {}

MOEJIT_DEVICE void arrive(Mbarrier barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 state;\n"
      "mbarrier.arrive.shared.b64 state, [%0];\n"
      "}\n" ::"r"(barrier.address)
      : "memory");
}

// A cluster is one CTA.
MOEJIT_DEVICE void arrive_in_cluster(Mbarrier barrier, int32_t) { arrive(barrier); }

// Lets the phase wait for all cp.async that this thread has started. Counts as no arrival: the
// phase expects one more, which comes when they are complete.
MOEJIT_DEVICE void arrive_when_copied(Mbarrier barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(barrier.address) : "memory");
}

MOEJIT_DEVICE void wait(Mbarrier barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred complete;\n"
      "again:\n"
      "mbarrier.test_wait.parity.shared.b64 complete, [%0], %1;\n"
      "@!complete bra again;\n"
      "}\n" ::"r"(barrier.address),
      "r"(parity)
      : "memory");
}

}  // namespace moejit::device::ptx
