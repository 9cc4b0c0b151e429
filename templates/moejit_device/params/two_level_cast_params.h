// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// bf16 rows to E2M1 with scales of E4M3 for 16 columns of a row, for 16 rows of a column, or both,
// or for tiles of 16x16. C columns, B = ceil(C / 128), P rows, E groups or matrices. Groups start
// at multiples of 16, so no block lies in two. Rows from a group's count to its end become zeros
// with scale 0; rows that belong to no group are left alone. Without groups all rows are real.
//
// By rows, two codes of neighboring columns are a byte, the first one in its low half. By columns,
// codes and scales are transposed: two codes of neighboring rows are a byte. A column then has
// `pitch` / 2 bytes of codes and `pitch` / 16 scales; codes and scales of matrices [E, R, C] are
// [E, C, R / 2] and [E, C, R / 16].
struct TwoLevelCastParams {
  const uint8_t* input;               // [P, C] bf16; gathered: [T, C]
  const int32_t* row_tokens;          // [P], gathered: the row's token, or ~token of a row of zeros
  const int32_t* counts;              // [E]
  const int32_t* offs;                // [E + 1], multiples of 16
  const float* expert_scales;         // [E]: what values are multiplied by; without groups and
                                      // matrices [1]
  uint8_t* output;                    // [P, C / 2] E2M1, cast by rows; or values [P, C] in bf16
  uint8_t* output_scale_inv;          // [P, 8 B] E4M3, 0 behind the last column; of values null
  uint8_t* output_colwise;            // [C, pitch / 2], cast by columns; or values [P, C]
  uint8_t* output_colwise_scale_inv;  // [C, pitch / 16]; of values null
  const uint32_t* skip;               // [1] or null; where it is not 0, nothing is written
  int64_t rows;                       // P, may be 0
  int64_t pitch;                      // a multiple of 16, at least P
  CallTokens call;
};

}  // namespace moejit::device
