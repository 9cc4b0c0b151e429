// SPDX-License-Identifier: Apache-2.0
#pragma once

// Values that were not 0 and became 0: counted, or not. A thread has one counter of its own.
// kThreadsPerSm: how many threads an SM should hold; one that counts holds words twice, before and
// after.

#include "moejit_device/params/transpose_params.h"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

struct IgnoreFlushed {
  static constexpr int32_t kThreadsPerSm = 512;

  MOEJIT_DEVICE void add(uint32_t, uint32_t) {}
  MOEJIT_DEVICE void finish(const TransposeParams&) const {}
};

class CountFlushed {
 public:
  static constexpr int32_t kThreadsPerSm = 256;

  // Four bytes before and after.
  MOEJIT_DEVICE void add(uint32_t before, uint32_t after) {
    count_ += ptx::population_count(nonzero(before) & ~nonzero(after));
  }
  // All lanes of a warp.
  MOEJIT_DEVICE void finish(const TransposeParams& params) const {
    uint64_t sum = static_cast<uint64_t>(count_);
#pragma unroll
    for (int32_t mask = 16; mask > 0; mask /= 2) sum += ptx::shuffle_xor(sum, mask);
    const auto flushed = ptx::global(params.flushed);
    if (ptx::lane_index() == 0 && sum > 0 && flushed) ptx::atomic_add(flushed, sum);
  }

 private:
  // Returns the top bit of each byte that is neither +0 nor -0.
  MOEJIT_DEVICE static uint32_t nonzero(uint32_t bytes) {
    return ((bytes & 0x7f7f7f7fu) + 0x7f7f7f7fu) & 0x80808080u;
  }

  int32_t count_ = 0;
};

}  // namespace moejit::device
