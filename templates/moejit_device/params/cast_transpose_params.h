// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// bf16 rows of tokens to permuted FP8 rows and to an operand of wgrad, with a known scale for each
// expert. T tokens, C columns, P permuted rows, E experts, Pc output columns. The rows of group e
// from offs[e] on become the columns from output_offs[e] on. Other rows, and columns that belong to
// no group, are left alone; pad rows, and the columns from a group's count to the next multiple of
// 128, become zeros. Rows and columns have the same codes.
struct CastTransposeParams {
  const void* input;           // bf16 [T, C]
  const int32_t* row_tokens;   // [P], the row's token, or ~token of a row of zeros
  const int32_t* counts;       // [E]
  const int32_t* offs;         // [E + 1]
  const int32_t* output_offs;  // [E + 1], multiples of 128; may be offs
  const float* expert_scales;  // [E], what values are multiplied by
  uint8_t* output;             // [P, C] e4m3 or e5m2, where wanted
  uint8_t* output_colwise;     // [Pc / 128, C, 128], columns in blocks of 128
  float* amax;             // [columns of a state] or null: not negative; is raised to the largest
                           // magnitudes of each expert's rows
  int64_t rows;            // P, may be 0; no row from P on is touched, whatever counts say
  int64_t output_columns;  // Pc, a multiple of 128, may be 0
  CallTokens call;
};

}  // namespace moejit::device
