// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of moejit_device/ptx/warpgroup.cuh where small tiles are multiplied by mma.sync:
// operands and sums fit into the registers that all threads have from the start, so none are
// traded. For sm_120, ptxas would ignore setmaxnreg in kernels that copy tensors.

#include "moejit_device/ptx/warp.cuh"

namespace moejit::device::ptx {

inline constexpr int32_t kWarpgroupThreads = 128;

MOEJIT_DEVICE int32_t warpgroup_index() { return shuffle(thread_index() / kWarpgroupThreads, 0); }

template <int32_t kRegisters>
MOEJIT_DEVICE void release_registers() {}
template <int32_t kRegisters>
MOEJIT_DEVICE void claim_registers() {}

}  // namespace moejit::device::ptx
