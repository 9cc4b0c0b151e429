// SPDX-License-Identifier: Apache-2.0
#pragma once

// The functions of moejit_device/ptx/copy_lanes.cuh where threads copy: all lanes of the warp.

#include "moejit_device/ptx/async_copy.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/mbarrier.cuh"

namespace moejit::device::ptx {

inline constexpr int32_t kCopyLanes = 32;
inline constexpr bool kThreadsCopy = true;

MOEJIT_DEVICE void begin_copies(Mbarrier, int32_t) {}

MOEJIT_DEVICE void arrive_together(Mbarrier barrier) {
  sync_warp();  // all lanes have come
  if (lane_index() == 0) arrive(barrier);
}

MOEJIT_DEVICE void end_copies(Mbarrier barrier) {
  arrive_when_copied(barrier);
  arrive_together(barrier);
}

}  // namespace moejit::device::ptx
