// SPDX-License-Identifier: Apache-2.0
#pragma once

// Indices of this thread, and the kernel's entry macros.

#include "moejit_device/core/types.cuh"

// MOEJIT_DEVICE qualifies every device function; MOEJIT_KERNEL(threads, ctas_per_sm, entry, Params)
// opens the definition of a kernel whose only parameter is `params`. MOEJIT_CLUSTER_KERNEL opens a
// kernel whose CTAs run in clusters of `cluster_ctas`: the CTAs of a cluster run at the same time
// and reach each other's shared memory. Such a kernel is launched with whole clusters.
#define MOEJIT_DEVICE __device__ __forceinline__
#define MOEJIT_KERNEL(threads, ctas_per_sm, entry, Params)           \
  extern "C" __global__ void __launch_bounds__(threads, ctas_per_sm) \
      entry(const __grid_constant__ Params params)
#define MOEJIT_CLUSTER_KERNEL(cluster_ctas, threads, ctas_per_sm, entry, Params) \
  extern "C" __global__ void __cluster_dims__(cluster_ctas, 1, 1)                \
      __launch_bounds__(threads, ctas_per_sm) entry(const __grid_constant__ Params params)

namespace moejit::device::ptx {

MOEJIT_DEVICE int32_t thread_index() { return static_cast<int32_t>(threadIdx.x); }
MOEJIT_DEVICE int32_t thread_count() { return static_cast<int32_t>(blockDim.x); }
MOEJIT_DEVICE int32_t cta_index() { return static_cast<int32_t>(blockIdx.x); }
MOEJIT_DEVICE int32_t cta_count() { return static_cast<int32_t>(gridDim.x); }
// The SM that runs this CTA, counted from 0.
MOEJIT_DEVICE int32_t sm_index() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(index));
  return static_cast<int32_t>(index);
}
MOEJIT_DEVICE int32_t lane_index() { return thread_index() & 31; }
MOEJIT_DEVICE int32_t warp_index() { return thread_index() >> 5; }

// Returns the value, 0 or more, as if it were made here as far as the compiler knows: results that
// follow from it are computed here, not ahead of a loop in registers that the loop needs.
MOEJIT_DEVICE int32_t made_here(int32_t value) {
  asm volatile("" : "+r"(value));
  __builtin_assume(value >= 0);
  return value;
}

}  // namespace moejit::device::ptx
