// SPDX-License-Identifier: Apache-2.0
#pragma once

// The lanes that copy tensors. The first kCopyLanes lanes of a warp call the functions of
// tensor_copy.cuh together, with the same operands. One lane starts a copy of the hardware.

#include "moejit_device/ptx/mbarrier.cuh"

namespace moejit::device::ptx {

inline constexpr int32_t kCopyLanes = 1;

// Whether threads copy what tensor copies would bring.
inline constexpr bool kThreadsCopy = false;

// Announces `bytes` of copies that complete on a barrier. With end_copies() behind the copies, it
// is one arrival there.
MOEJIT_DEVICE void begin_copies(Mbarrier barrier, int32_t bytes) {
  arrive_expecting(barrier, bytes);
}
MOEJIT_DEVICE void end_copies(Mbarrier) {}

// The copying lanes arrive once together. What they did before is visible to whoever waits.
MOEJIT_DEVICE void arrive_together(Mbarrier barrier) { arrive(barrier); }

}  // namespace moejit::device::ptx
