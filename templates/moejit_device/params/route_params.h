// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/params/status_bits.h"

namespace moejit::device {

// T tokens, K top-k, E local experts; shapes in brackets, row-major.
// Route takes this record, and so does SplitRows, which reads tokens_per_expert [E] instead of ids
// and has K = 1.
struct RouteParams {
  const void* topk_ids;   // [T, K] int32 or int64: local expert id, -1: not routed here
  int32_t* counts;        // [E] rows of each expert, without pad rows
  int32_t* offs;          // [E + 1] first row of each expert, aligned; offs[0] = 0
  int32_t* colwise_offs;  // [E + 1] the same for columns: each expert's counts[e] start at a
                          // multiple of 128; null where nobody asked for it
  int32_t* row_map;       // [T, K] destination row, or -1; null where SplitRows moves no rows
  uint32_t* status;       // [1] status bits are or-ed in
  int64_t tokens;         // T, may be 0
  int64_t max_rows;       // P, multiple of the alignment
  int64_t* saved_tokens;  // [1] gets T, for a backward call to compare; null: not wanted
};

}  // namespace moejit::device
