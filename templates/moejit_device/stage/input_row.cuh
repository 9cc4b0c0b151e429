// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/ptx/thread.cuh"

namespace moejit::device {

// Returns where the input has row `row` of stacked matrices, each of kSections parts of
// kSectionRows rows: there, or, where the rows of a matrix's parts alternate, elsewhere in the same
// matrix.
template <int32_t kSections, int32_t kSectionRows, bool kInterleaved>
MOEJIT_DEVICE int64_t input_row(int64_t row) {
  if constexpr (!kInterleaved) {
    return row;
  } else {
    const int64_t section = row / kSectionRows;  // of all matrices
    const int64_t matrix = section / kSections;
    const int64_t row_of_section = row - section * kSectionRows;
    return (matrix * kSectionRows + row_of_section) * kSections + (section - matrix * kSections);
  }
}

}  // namespace moejit::device
