// SPDX-License-Identifier: Apache-2.0
#pragma once

// Simulator's version of moejit_device/ptx/thread.cuh.

#include "moejit_device/core/types.cuh"
#include "moejit_sim/machine.h"

#define MOEJIT_DEVICE inline
#define MOEJIT_SIM_EXPORT __attribute__((visibility("default")))
#define MOEJIT_KERNEL(threads, ctas_per_sm, entry, Params) \
  MOEJIT_CLUSTER_KERNEL(1, threads, ctas_per_sm, entry, Params)
#define MOEJIT_CLUSTER_KERNEL(cluster_ctas, threads, ctas_per_sm, entry, Params)                \
  static void entry##_body(const Params& params);                                               \
  extern "C" {                                                                                  \
  MOEJIT_SIM_EXPORT void entry(const void* params) {                                            \
    entry##_body(*static_cast<const Params*>(params));                                          \
  }                                                                                             \
  MOEJIT_SIM_EXPORT extern const ::moejit::sim::KernelDescription entry##_description;          \
  const ::moejit::sim::KernelDescription entry##_description = {::moejit::sim::kMachineVersion, \
                                                                sizeof(Params),                 \
                                                                alignof(Params),                \
                                                                (threads),                      \
                                                                (ctas_per_sm),                  \
                                                                (cluster_ctas),                 \
                                                                entry};                         \
  }                                                                                             \
  static void entry##_body(const Params& params)

namespace moejit::device::ptx {

using sim::Access;
using sim::Collective;
using sim::machine;
using sim::Machine;
using sim::Site;

MOEJIT_DEVICE bool is_in_second_cta() { return machine()->thread >= machine()->thread_count; }
MOEJIT_DEVICE int32_t thread_index() {
  return machine()->thread - (is_in_second_cta() ? machine()->thread_count : 0);
}
MOEJIT_DEVICE int32_t thread_count() { return machine()->thread_count; }
MOEJIT_DEVICE int32_t cta_index() { return machine()->cta + (is_in_second_cta() ? 1 : 0); }
MOEJIT_DEVICE int32_t cta_count() { return machine()->cta_count; }
// Two neighboring CTAs share an SM.
MOEJIT_DEVICE int32_t sm_index() { return cta_index() / 2; }
MOEJIT_DEVICE int32_t lane_index() { return thread_index() & 31; }
MOEJIT_DEVICE int32_t warp_index() { return thread_index() >> 5; }
MOEJIT_DEVICE int32_t made_here(int32_t value) { return value; }

}  // namespace moejit::device::ptx
