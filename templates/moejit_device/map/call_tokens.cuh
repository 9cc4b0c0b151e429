// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"
#include "moejit_device/params/status_bits.h"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// Tells whether a backward call has another T than its forward call, and sets the status bit if so.
// What the forward call saved then names rows that lie beyond this call's tensors, so that a kernel
// returns before it touches any. All threads get the same answer.
MOEJIT_DEVICE bool has_other_tokens(const CallTokens& call) {
  const auto saved = ptx::global(call.saved_tokens);
  if (!saved || ptx::load(saved) == call.tokens) return false;
  const auto status = ptx::global(call.tokens_status);
  if (status && ptx::cta_index() == 0 && ptx::thread_index() == 0)
    ptx::atomic_or(status, kStatusOtherTokens);
  return true;
}

}  // namespace moejit::device
