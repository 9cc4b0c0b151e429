// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// Rows of gradients, and what biases have of them: sums of columns, or of a row times the bias. P
// rows in E groups, C columns of a row, B = ceil(C / 128).
struct BiasGradientParams {
  const void* input;             // [P, C] bf16 or e4m3
  const float* input_scale_inv;  // [P, B] of e4m3
  const float* probs;            // [P], where rows count with their probabilities
  const Bf16* bias;              // [E, C], of rows times a bias
  const int32_t* counts;         // [E]
  const int32_t* offs;           // [E + 1]
  float* output;                 // [E, N], the columns that are added up; or [P]
  int64_t rows;                  // P; no row from there on is read, whatever counts say
  CallTokens call;
};

}  // namespace moejit::device
