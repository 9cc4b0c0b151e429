// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which tensor of a list a tile belongs to, and which of its rows and columns.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/multi_cast_transpose_params.h"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

inline constexpr int32_t kCastTile = 128;  // rows and columns

// The number of tensors whose tiles all come before `tile`, N where there is no such tile. All
// lanes of a warp: each looks at the last of one of 32 runs of tensors, then 32 times shorter ones.
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

// A tile of 128x128 elements, fewer at the edges of its tensor.
struct CastTile {
  CastTransposeTensor tensor;
  int64_t first_row, first_column;
  bool is_first;  // of the tensor

  // `index`: of its tensor.
  MOEJIT_DEVICE CastTile(const MultiCastTransposeParams& params, int64_t tile, int64_t index) {
    tensor = tensor_at(params.tensors + index);
    const int64_t begin = index == 0 ? 0 : ptx::load(ptx::global(params.tile_ends) + (index - 1));
    // A tensor has fewer than 2^31 tiles: it would have 2^45 elements.
    const auto in_tensor = static_cast<uint32_t>(tile - begin);
    const auto per_row = static_cast<uint32_t>(ceil_div(tensor.columns, int64_t{kCastTile}));
    const uint32_t tile_row = in_tensor / per_row;
    first_row = int64_t{kCastTile} * tile_row;
    first_column = int64_t{kCastTile} * (in_tensor - tile_row * per_row);
    is_first = in_tensor == 0;
  }

  MOEJIT_DEVICE int32_t rows() const { return within_tile(tensor.rows - first_row); }
  MOEJIT_DEVICE int32_t columns() const { return within_tile(tensor.columns - first_column); }

  MOEJIT_DEVICE float scale() const {
    const auto scale = ptx::global(tensor.scale);
    return scale ? ptx::load(scale) : 1.0f;
  }
  // Offset of an element of the tensor, and of the same one transposed.
  MOEJIT_DEVICE int64_t offset(int32_t row, int32_t column) const {
    return (first_row + row) * tensor.columns + (first_column + column);
  }
  MOEJIT_DEVICE int64_t colwise_offset(int32_t row, int32_t column) const {
    return (first_column + column) * tensor.rows + (first_row + row);
  }
  // Whether 16 neighbours in a row, and in a column, are one access or all outside.
  MOEJIT_DEVICE bool has_whole_row_runs() const {
    return is_multiple_of_16(tensor.input) && is_multiple_of_16(tensor.output) &&
           tensor.columns % 16 == 0;
  }
  MOEJIT_DEVICE bool has_whole_column_runs() const {
    return is_multiple_of_16(tensor.output_colwise) && tensor.rows % 16 == 0;
  }

 private:
  MOEJIT_DEVICE static CastTransposeTensor tensor_at(const CastTransposeTensor* record) {
    return {.input = ptx::known_global(ptx::load(ptx::global(&record->input))),
            .output = ptx::known_global(ptx::load(ptx::global(&record->output))),
            .output_colwise = ptx::known_global(ptx::load(ptx::global(&record->output_colwise))),
            .scale = ptx::known_global(ptx::load(ptx::global(&record->scale))),
            .amax = ptx::known_global(ptx::load(ptx::global(&record->amax))),
            .scale_inv = ptx::known_global(ptx::load(ptx::global(&record->scale_inv))),
            .rows = ptx::load(ptx::global(&record->rows)),
            .columns = ptx::load(ptx::global(&record->columns))};
  }
  MOEJIT_DEVICE static int32_t within_tile(int64_t size) {
    return static_cast<int32_t>(smaller(size, int64_t{kCastTile}));
  }
  MOEJIT_DEVICE static bool is_multiple_of_16(const void* address) {
    return reinterpret_cast<uint64_t>(address) % 16 == 0;
  }
};

}  // namespace moejit::device
