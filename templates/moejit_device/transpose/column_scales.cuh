// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the scales of an operand of wgrad lie that has one for every column of a tile: an operand
// [Pc / 128, C, 128] has scales [Pc / 128, C]. The scales of a tile's columns lie side by side, as
// wgrad reads them in a step of its contraction.

#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// Returns the scale of 128 tokens of a column; `columns` is C.
template <typename T>
MOEJIT_DEVICE ptx::GlobalPtr<T> column_scale(T* scales, int64_t columns, int64_t token_block,
                                             int64_t column) {
  return ptx::global(scales) + (token_block * columns + column);
}

}  // namespace moejit::device
