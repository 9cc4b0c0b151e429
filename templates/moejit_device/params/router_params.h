// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// The bit of the status word for a value that orders a token's choice and is NaN, or a probability
// that is not finite.
inline constexpr uint32_t kStatusBadLogit = 32u;

// T tokens, K top-k, A experts with zero experts; shapes in brackets, row-major. Null where the
// formula has no such tensor.
struct RouterParams {
  const void* logits;         // [T, A] f32 or bf16
  const float* router_bias;   // [A]
  const float* expert_scale;  // [A]
  void* topk_ids;             // [T, K] i32 or i64; -1: a zero expert. Read if ids are given
  float* topk_probs;          // [T, K]
  void* chosen_ids;           // [T, K] as topk_ids, with the ids of zero experts
  float* zero_probs;          // [T] sum of the zero experts' probabilities
  int32_t* counts;            // [A] each expert's choices are added; null: not wanted
  int32_t* unbiased_counts;   // [A] the same of the choice by logits alone
  uint64_t* score_sums;       // [A] scores are added, in units of 2^-32
  uint64_t* z_sum;            // [1] squared logsumexps are added, in units of 2^-24
  uint32_t* status;           // [1] status bits are or-ed in
  int64_t tokens;             // T, may be 0
};

// The gradient of the logits.
struct RouterBackwardParams {
  const void* logits;            // [T, A] f32 or bf16
  const float* expert_scale;     // [A]
  const void* topk_ids;          // [T, K] i32 or i64, with the ids of zero experts
  const float* dprobs;           // [T, K]
  const float* dzero_probs;      // [T]
  const int32_t* counts;         // [A] of the load-balancing loss
  const float* aux_coefficient;  // [1]
  const float* z_coefficient;    // [1]
  void* dlogits;                 // [T, A] as logits
  float* dexpert_scale;          // [T, K] gradient of each choice's factor
  CallTokens call;               // T, may be 0
};

}  // namespace moejit::device
