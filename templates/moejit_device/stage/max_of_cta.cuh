// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

// Returns the largest value of all threads of the CTA, which has kWarps warps; NaN counts as
// nothing. Its barrier orders the writes of `slots` [kWarps] before the reads. Between those and
// the next call with the same slots the caller has another barrier.
template <int32_t kWarps>
MOEJIT_DEVICE float max_of_cta(ptx::SharedPtr<float> slots, float value) {
#pragma unroll
  for (int32_t mask = 16; mask > 0; mask /= 2) {
    value = ptx::max_number(value, ptx::shuffle_xor(value, mask));
  }
  if (ptx::lane_index() == 0) ptx::store(slots + ptx::warp_index(), value);
  ptx::sync_cta();
#pragma unroll
  for (int32_t w = 0; w < kWarps; ++w) value = ptx::max_number(value, ptx::load(slots + w));
  return value;
}

}  // namespace moejit::device
