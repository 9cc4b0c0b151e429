// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// T of a backward call and of the forward call before it, in the parameters of its kernels.
struct CallTokens {
  const int64_t* saved_tokens;  // [1] T of the forward call; null: nothing is compared
  uint32_t* tokens_status;      // [1] kStatusOtherTokens is or-ed in; null: not wanted
  int64_t tokens;               // T of this call
};

}  // namespace moejit::device
