// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which rows become 128 output columns.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/transpose_params.h"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

struct RowTile {
  int64_t first;  // row of the input
  int32_t count;  // real rows, at most 128; 0 or less: none
  int32_t group;
  bool is_past_the_end;  // no later column has rows either
};

// Returns the rows of the columns from `column` on, a multiple of 128. All lanes of a warp: each
// looks at one group of 32. Uses counts, offs, output_offs and rows of TransposeParams, or of a
// record that has them too.
template <int32_t kGroups, typename Params>
MOEJIT_DEVICE RowTile find_row_tile(const Params& params, int64_t column) {
  static_assert(kGroups > 0, "there is at least one group");
  const auto ends = ptx::global(params.output_offs) + 1;
  int32_t group = 0;  // those that end at or before the column
#pragma unroll
  for (int32_t first = 0; first < kGroups; first += 32) {
    const int32_t own = first + ptx::lane_index();
    const bool is_before = own < kGroups && ptx::load(ends + own) <= column;
    group += ptx::population_count(ptx::ballot(is_before));
  }
  if (group == kGroups) return {.first = 0, .count = 0, .group = group, .is_past_the_end = true};
  const int64_t begin = ptx::load(ptx::global(params.offs) + group);
  const int64_t skipped = column - ptx::load(ptx::global(params.output_offs) + group);
  const int64_t count =
      smaller(int64_t{ptx::load(ptx::global(params.counts) + group)}, params.rows - begin);
  return {.first = begin + skipped,
          .count = static_cast<int32_t>(larger(smaller(count - skipped, int64_t{128}), int64_t{0})),
          .group = group,
          .is_past_the_end = false};
}

}  // namespace moejit::device
