// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which tensor of a list a tile belongs to, and which of its rows and columns.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/multi_cast_transpose_params.h"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

inline constexpr int32_t kCastTile = 128;  // rows and columns

// Returns the number of tensors whose tiles all come before `tile`, N where there is no such tile.
// All lanes of a warp: each looks at the last of one of 32 runs of tensors, then 32 times shorter
// ones.
MOEJIT_DEVICE int64_t tensors_before(const MultiCastTransposeParams& params, int64_t tile) {
  const auto ends = ptx::global(params.tile_ends);
  int64_t run = 1;
  while (32 * run < params.count) run *= 32;
  int64_t before = 0;
  for (; run > 0; run /= 32) {
    const int64_t last = before + (ptx::lane_index() + 1) * run - 1;
    const bool is_before = last < params.count && ptx::load(ends + last) <= tile;
    before += run * ptx::population_count(ptx::ballot(is_before));
  }
  return before;
}

// A tile of 128x128 elements, fewer at the edges of its tensor. Addresses stay in the list until
// they are needed: registers are for the elements.
class CastTile {
 public:
  // `index` is the index of the tile's tensor.
  MOEJIT_DEVICE CastTile(const MultiCastTransposeParams& params, int64_t tile, int64_t index)
      : tensor_(params.tensors + index),
        row_pitch_(field(&tensor_->columns)),
        column_pitch_(field(&tensor_->rows)) {
    const int64_t begin = index == 0 ? 0 : ptx::load(ptx::global(params.tile_ends) + (index - 1));
    // A tensor has fewer than 2^31 tiles: it would have 2^45 elements.
    const auto in_tensor = static_cast<uint32_t>(tile - begin);
    const auto per_row = static_cast<uint32_t>(ceil_div(row_pitch_, int64_t{kCastTile}));
    tile_row_ = in_tensor / per_row;
    tile_column_ = in_tensor - tile_row_ * per_row;
  }

  MOEJIT_DEVICE bool is_first() const { return tile_row_ == 0 && tile_column_ == 0; }
  MOEJIT_DEVICE int32_t rows() const { return within_tile(column_pitch_ - first_row()); }
  MOEJIT_DEVICE int32_t columns() const { return within_tile(row_pitch_ - first_column()); }

  // Return the elements from a row to the next one in the tensor, and from a column to the next one
  // in its transpose.
  MOEJIT_DEVICE int64_t row_pitch() const { return row_pitch_; }
  MOEJIT_DEVICE int64_t column_pitch() const { return column_pitch_; }

  // Return this tile's first element before and after the cast, and in the transpose.
  template <typename Element>
  MOEJIT_DEVICE ptx::GlobalPtr<const Element> input() const {
    const void* const address = ptx::known_global(field(&tensor_->input));
    return ptx::global(static_cast<const Element*>(address)) + first_offset();
  }
  MOEJIT_DEVICE ptx::GlobalPtr<uint8_t> output() const {
    return pointer(&tensor_->output) + first_offset();
  }
  MOEJIT_DEVICE ptx::GlobalPtr<uint8_t> output_colwise() const {
    return pointer(&tensor_->output_colwise) + (first_column() * column_pitch_ + first_row());
  }

  // Returns the scale of the tile's tensor.
  MOEJIT_DEVICE float scale() const {
    const auto scale = pointer(&tensor_->scale);
    return scale ? ptx::load(scale) : 1.0f;
  }
  MOEJIT_DEVICE ptx::GlobalPtr<float> amax() const { return pointer(&tensor_->amax); }
  MOEJIT_DEVICE ptx::GlobalPtr<float> scale_inv() const { return pointer(&tensor_->scale_inv); }

  // Return whether 16 neighbors in a row, and in a column, are one access or all outside.
  MOEJIT_DEVICE bool has_whole_row_runs() const {
    return is_multiple_of_16(field(&tensor_->input)) &&
           is_multiple_of_16(field(&tensor_->output)) && row_pitch_ % 16 == 0;
  }
  MOEJIT_DEVICE bool has_whole_column_runs() const {
    return is_multiple_of_16(field(&tensor_->output_colwise)) && column_pitch_ % 16 == 0;
  }

 private:
  template <typename T>
  MOEJIT_DEVICE static T field(const T* address) {
    return ptx::load(ptx::global(address));
  }
  template <typename T>
  MOEJIT_DEVICE static ptx::GlobalPtr<T> pointer(T* const* address) {
    return ptx::global(ptx::known_global(field(address)));
  }
  MOEJIT_DEVICE int64_t first_row() const { return int64_t{kCastTile} * tile_row_; }
  MOEJIT_DEVICE int64_t first_column() const { return int64_t{kCastTile} * tile_column_; }
  MOEJIT_DEVICE int64_t first_offset() const { return first_row() * row_pitch_ + first_column(); }
  MOEJIT_DEVICE static int32_t within_tile(int64_t size) {
    return static_cast<int32_t>(smaller(size, int64_t{kCastTile}));
  }
  MOEJIT_DEVICE static bool is_multiple_of_16(const void* address) {
    return reinterpret_cast<uint64_t>(address) % 16 == 0;
  }

  const CastTransposeTensor* tensor_;
  int64_t row_pitch_, column_pitch_;
  uint32_t tile_row_, tile_column_;
};

}  // namespace moejit::device
