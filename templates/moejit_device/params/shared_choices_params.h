// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// The choices of T tokens: K that a router made, and n of shared experts behind them.
struct SharedChoicesParams {
  const void* topk_ids;      // [T, K] i32 or i64: experts of the model, without shared ones
  const void* topk_probs;    // [T, K] f32 or bf16
  const void* shared_probs;  // [T] f32 or bf16, where there is a gate
  int32_t* all_ids;          // [T, K + n]
  float* all_probs;          // [T, K + n]
  int64_t tokens;            // T
  int64_t rank;              // of the tokens, in a group
};

// The gradients of these choices' probabilities.
struct SharedDprobsParams {
  const float* all_dprobs;  // [T, K + n]
  void* dprobs;             // [T, K] f32 or bf16
  void* dshared_probs;      // [T] f32 or bf16, where there is a gate
  int64_t tokens;           // T
  CallTokens call;
};

}  // namespace moejit::device
