// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// The first words of `digest`: what the casts behind the check read, and a counter that is 0
// between launches.
inline constexpr int32_t kDigestUnchanged = 0;  // 1: the weights are as before; 0: cast them
inline constexpr int32_t kDigestArrived = 1;    // CTAs that have looked, and those that found
inline constexpr int32_t kDigestHeader = 4;

// Two weights, and words that tell whether they have changed. Data is 16-byte aligned.
struct WeightCheckParams {
  const Bf16* w1;        // all experts' matrices
  const Bf16* w2;        // all experts' matrices
  const uint32_t* skip;  // [1] or null; where it is not 0, the weights count as unchanged
  uint32_t* status;      // [1] or null: set to 0, for the forward call behind
  uint32_t* digest;      // [kDigestHeader + threads of the grid]; zeros: nothing has been seen
};

}  // namespace moejit::device
