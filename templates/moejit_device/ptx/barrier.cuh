// SPDX-License-Identifier: Apache-2.0
#pragma once

// Barriers. Each orders the shared and global accesses of its threads before it against those
// after it.

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device::ptx {

// All threads of the CTA.
MOEJIT_DEVICE void sync_cta() { __syncthreads(); }

// `threads` threads (multiple of 32) that name the same barrier, 1 to 15.
MOEJIT_DEVICE void sync_named(int32_t barrier, int32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// All threads of all CTAs of the cluster, those aside that have exited. Orders the shared memory of
// these CTAs too.
MOEJIT_DEVICE void sync_cluster() {
  asm volatile(
      "barrier.cluster.arrive.aligned;\n"
      "barrier.cluster.wait.aligned;\n" ::
          : "memory");
}

// All lanes of the warp.
MOEJIT_DEVICE void sync_warp() { __syncwarp(); }

}  // namespace moejit::device::ptx
