// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/call_tokens.h"

namespace moejit::device {

// Scales of groups of 32 or 16 to the order in which Blackwell's GEMMs read them. C columns, B =
// ceil(C / 128), P rows, E groups, Pc output rows. A tile is 128 rows by 4 scales of each, 512
// bytes: the scale j of row i at 16 (i % 32) + 4 (i / 32) + j. The tiles of group e begin behind
// the tiles of output_offs[e] rows, B tiles for 128 rows. For scales by columns, i counts columns,
// and j the scales of four blocks of 32 tokens. Groups of 16 have twice as many scales and tiles;
// by columns their scales lie transposed.
struct SwizzleScalesParams {
  const uint8_t* input;        // [P, 4 B] by rows, of groups of 16 [P, 8 B]; by columns
                               // [ceil(P / 32), C], of groups of 16 [C, pitch / 16]
  const int32_t* counts;       // [E]
  const int32_t* offs;         // [E + 1], multiples of 32
  const int32_t* output_offs;  // [E + 1], multiples of 128; may be offs
  uint8_t* output;             // [Pc / 128 * B, 512]; scales of no row are 0
  int64_t rows;                // P, may be 0
  int64_t output_columns;      // Pc, a multiple of 128, may be 0
  int64_t pitch;               // a multiple of 16, at least P
  CallTokens call;
};

}  // namespace moejit::device
