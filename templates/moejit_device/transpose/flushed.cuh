// SPDX-License-Identifier: Apache-2.0
#pragma once

// Values that were not 0 and became 0: counted, or not. A thread has one counter of its own.

#include "moejit_device/params/transpose_params.h"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

struct IgnoreFlushed {
  MOEJIT_DEVICE void add(uint32_t, uint32_t) {}
  MOEJIT_DEVICE void finish(const TransposeParams&) const {}
};

class CountFlushed {
 public:
  // Four bytes before and after.
  MOEJIT_DEVICE void add(uint32_t before, uint32_t after) {
    count_ += ptx::population_count(nonzero(before) & ~nonzero(after));
  }
  // All lanes of a warp.
  MOEJIT_DEVICE void finish(const TransposeParams& params) const {
    int32_t sum = count_;
#pragma unroll
    for (int32_t mask = 16; mask > 0; mask /= 2) sum += ptx::shuffle_xor(sum, mask);
    const auto flushed = ptx::global(params.flushed);
    if (ptx::lane_index() == 0 && sum > 0 && flushed)
      ptx::atomic_add(flushed, static_cast<uint64_t>(sum));
  }

 private:
  // The top bit of each byte that is neither +0 nor -0.
  MOEJIT_DEVICE static uint32_t nonzero(uint32_t bytes) {
    return ((bytes & 0x7f7f7f7fu) + 0x7f7f7f7fu) & 0x80808080u;
  }

  int32_t count_ = 0;
};

}  // namespace moejit::device
