// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// The states of fc1 and fc2, each of S columns and L steps.
struct UpdateScalesParams {
  float* fc1_amax_history;  // [L, S]: row 0 is of this step, the last row of the step before
  float* fc1_scale;         // [S]
  float* fc2_amax_history;  // [L, S]
  float* fc2_scale;         // [S]
};

}  // namespace moejit::device
