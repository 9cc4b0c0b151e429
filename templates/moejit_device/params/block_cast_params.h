// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// bf16 rows to elements with a scale for 32 columns of a row, for 32 rows of a column, or both. C
// columns, B = ceil(C / 128), P rows, E groups. Groups start at multiples of 32, and so do groups
// of 32 rows: none lies in two groups. Where values are stored groups may start anywhere, and
// groups of 32 rows restart at each. Rows from a group's count to its end become zeros with scale
// 0; rows that belong to no group are left alone. Without groups all rows are real.
struct BlockCastParams {
  const uint8_t* input;               // [P, C] bf16; gathered: [T, C]
  const int32_t* row_tokens;          // [P], gathered: the row's token, or ~token of a row of zeros
  const int32_t* counts;              // [E]
  const int32_t* offs;                // [E + 1], multiples of 32, or any
  uint8_t* output;                    // [P, C], cast by rows: e4m3, or the values in bf16
  uint8_t* output_scale_inv;          // [P, 4 B] E8M0, 0 behind the last column; of values null
  uint8_t* output_colwise;            // [P, C], cast by columns
  uint8_t* output_colwise_scale_inv;  // [ceil(P / 32), C] E8M0; of values null
  const uint32_t* skip;               // [1] or null; where it is not 0, nothing is written
  int64_t rows;                       // P, may be 0
  CallTokens call;
};

}  // namespace moejit::device
