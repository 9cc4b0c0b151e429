// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// Rows to an operand of wgrad: row-wise quantized ones, which are transposed, or bf16, which are
// cast by columns. C columns, B = ceil(C / 128), P rows, E groups, Pc output columns. The rows of
// group e from offs[e] on become the columns from output_offs[e] on. Its other rows, and columns
// that belong to no group, are left alone; the columns from a group's count to the next multiple of
// 128 become zeros. Where the groups are matrices [E, R, C], their fields are null, and the output
// is [E, C, R].
struct TransposeParams {
  const uint8_t* input;          // [P, C] e4m3, e5m2, or bf16 to cast; gathered: [T, C]
  const float* input_scale_inv;  // [P, B] powers of two, or 0 where the data are zeros; [T, B];
                                 // of bf16 null, or known scales [E, C]
  const int32_t* row_tokens;     // [P], gathered: the row's token, or ~token of a row of zeros
  const int32_t* counts;         // [E]
  const int32_t* offs;           // [E + 1]
  const int32_t* output_offs;    // [E + 1], multiples of 128; may be offs
  uint8_t* output;               // [Pc / 128, C, 128], columns in blocks of 128
  float* output_scale_inv;       // [B, Pc / 128], of each 128x128 tile; of casts [Pc / 128, C]
                                 // or, of all tokens of a group, [E, C]
  uint64_t* flushed;             // [1], values that became 0 are added; null: not counted
  uint32_t* status;              // [1], kStatusBadScale is or-ed in; null: not wanted
                                 // (both null for casts)
  const uint32_t* skip;          // [1] or null, of matrices: where it is not 0, nothing is written
  int64_t rows;                  // P, may be 0; no row from P on is read, whatever counts say
  int64_t output_columns;        // Pc, a multiple of 128, may be 0
  CallTokens call;
};

}  // namespace moejit::device
