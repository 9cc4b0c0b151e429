// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// Scales of an operand of fc1 and of one of fc2, out of states with some columns for each of E
// experts.
struct TakeScalesParams {
  const float* fc1_stored;  // [columns of a state]: its scales
  const float* fc2_stored;  // [columns of a state]
  float* fc1_scale;         // [E]: what values are multiplied by; null, as its inverse: not wanted
  float* fc1_scale_inv;     // [E]: what codes are multiplied by
  float* fc2_scale;         // [E] or null
  float* fc2_scale_inv;     // [E]
  const uint32_t* skip;     // [1] or null; where it is not 0, nothing is written
  CallTokens call;
};

}  // namespace moejit::device
