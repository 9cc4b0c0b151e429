// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/transpose.h"

#include <cstdint>
#include <vector>

namespace moejit::testing {

// Rows of each group in most tests of kernels that transpose.
inline const std::vector<int32_t> kTransposeCounts{0, 1, 15, 16, 0, 17, 127, 128, 129, 300, 0};

// Returns groups of so many rows that start at multiples of `alignment`, and whose columns, or
// tiles of 128 rows, start at multiples of 128.
inline reference::TransposeGroups groups_of(const std::vector<int32_t>& counts,
                                            int32_t alignment = 16) {
  reference::TransposeGroups groups{.counts = counts, .offs = {0}, .output_offs = {0}};
  for (const int32_t count : counts) {
    const auto next = [&](int32_t from, int32_t step) {
      return (from + count + step - 1) / step * step;
    };
    groups.offs.push_back(next(groups.offs.back(), alignment));
    groups.output_offs.push_back(next(groups.output_offs.back(), 128));
  }
  return groups;
}

}  // namespace moejit::testing
