// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// The gradients of probabilities on their way from rows to the choices of tokens. T tokens, K
// top-k, P permuted rows. The row chain whose store stage is kRowsAndProbs has the same fields.
struct UnpermuteDprobsParams {
  const int32_t* row_map;      // [T, K], -1: a choice has no row
  const float* dprobs_blocks;  // [P, blocks]: a row's gradient, in parts
  const float* bias_dprobs;    // [P], where asked for: added behind the blocks
  void* dprobs;                // [T, K] f32 or bf16
  int64_t rows;                // T
  CallTokens call;
};

}  // namespace moejit::device
