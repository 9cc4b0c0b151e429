// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which rows have scales of columns in common: the rows of an expert, or of a matrix. Tiles of 128
// of them become columns together. kWalks: whether CTAs take tile after tile, so that any number of
// them does all.

#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/map/splits.cuh"
#include "moejit_device/stage/input_row.cuh"
#include "moejit_device/transpose/byte_block.cuh"
#include "moejit_device/transpose/output_groups.cuh"

namespace moejit::device {

// Neighboring rows of a group.
struct RowRange {
  int64_t first;
  int64_t count;  // 0 or less: none
};

// The real rows of kGroups_ experts, whose operand lies in blocks of 128 columns.
template <int32_t kGroups_>
struct ExpertRows {
  static constexpr int32_t kGroups = kGroups_;
  static constexpr bool kWalks = false;
  static constexpr int32_t kPitch = 128;  // from a column of a block to the next

  MOEJIT_DEVICE static bool are_skipped(const TransposeParams& params) {
    return has_other_tokens(params.call);
  }
  MOEJIT_DEVICE static RowRange rows(const TransposeParams& params, int32_t group) {
    const Splits<kGroups> splits{ptx::global(params.counts), ptx::global(params.offs)};
    const int64_t first = splits.begin(group);
    return {first, smaller(int64_t{splits.count(group)}, params.rows - first)};
  }
  MOEJIT_DEVICE static uint32_t tiles(const TransposeParams& params) {
    return static_cast<uint32_t>(params.output_columns / 128);
  }
  MOEJIT_DEVICE static RowTile tile(const TransposeParams& params, int64_t tile) {
    return find_row_tile<kGroups>(params, tile * 128);
  }
  // Returns whether rows `row` to row + 15 of a tile are written: those that fill it up are, too.
  MOEJIT_DEVICE static bool has_columns(const RowTile&, int32_t) { return true; }
  // Returns the first element of a tile's column.
  template <int32_t kColumns>
  MOEJIT_DEVICE static int64_t offset(const RowTile&, int64_t tile, int32_t column) {
    return (tile * kColumns + column) * 128;
  }
};

// The rows of kGroups_ experts of which each stands for 128 rows of an expert's operand: the tiles
// from output_offs / 128 on that have real rows.
template <int32_t kGroups_>
struct ExpertTiles {
  static constexpr int32_t kGroups = kGroups_;
  static constexpr bool kWalks = false;

  MOEJIT_DEVICE static bool are_skipped(const TransposeParams& params) {
    return has_other_tokens(params.call);
  }
  MOEJIT_DEVICE static RowRange rows(const TransposeParams& params, int32_t group) {
    const int64_t first = ptx::load(ptx::global(params.output_offs) + group) / 128;
    return {first, ceil_div(larger(ExpertRows<kGroups>::rows(params, group).count, int64_t{0}),
                            int64_t{128})};
  }
};

// The rows of kGroups_ matrices, each of kSections parts of kSectionRows rows; the operand has
// kColumns rows for each.
template <int32_t kGroups_, int32_t kSections, int32_t kSectionRows>
struct MatrixRows {
  static constexpr int32_t kGroups = kGroups_;
  static constexpr bool kWalks = true;
  static constexpr int32_t kRows = kSections * kSectionRows;
  static_assert(kRows % 16 == 0, "16 bytes of a column are all inside a matrix or outside");
  static constexpr int32_t kPitch = kRows;
  static constexpr int32_t kTiles = ceil_div(kRows, int32_t{128});  // of a matrix

  MOEJIT_DEVICE static bool are_skipped(const TransposeParams& params) {
    const auto skip = ptx::global(params.skip);
    return skip && ptx::load(skip) != 0;
  }
  MOEJIT_DEVICE static RowRange rows(const TransposeParams&, int32_t group) {
    return {int64_t{group} * kRows, kRows};
  }
  MOEJIT_DEVICE static uint32_t tiles(const TransposeParams&) {
    return static_cast<uint32_t>(kGroups) * kTiles;
  }
  MOEJIT_DEVICE static RowTile tile(const TransposeParams&, int64_t tile) {
    const auto group = static_cast<int32_t>(tile / kTiles);
    const int32_t row = first_row(tile);
    return {.first = int64_t{group} * kRows + row,
            .count = smaller(kRows - row, int32_t{128}),
            .group = group,
            .is_past_the_end = false};
  }
  MOEJIT_DEVICE static bool has_columns(const RowTile& rows, int32_t row) {
    return kRows % 128 == 0 || row < rows.count;
  }
  template <int32_t kColumns>
  MOEJIT_DEVICE static int64_t offset(const RowTile& rows, int64_t tile, int32_t column) {
    return (int64_t{rows.group} * kColumns + column) * kRows + first_row(tile);
  }

 private:
  // Returns the first row of a tile in its matrix.
  MOEJIT_DEVICE static int32_t first_row(int64_t tile) {
    return static_cast<int32_t>(tile % kTiles) * 128;
  }
};

// A source of rows (transpose/row_source.cuh): rows of matrices whose kSections parts of
// kSectionRows rows alternate in the input. A row has kRowBytes.
template <int32_t kRowBytes, int32_t kSections, int32_t kSectionRows>
struct AlternatingRows {
  static constexpr int32_t kBandTiles = ceil_div(kRowBytes, int32_t{128});

  MOEJIT_DEVICE AlternatingRows(const TransposeParams&, int64_t first, int32_t count)
      : first_(first), count_(count) {}

  MOEJIT_DEVICE ByteBlock fetch_block(const TransposeParams& params, int32_t column,
                                      bool has_column) const {
    constexpr bool kInterleaved = true;
    const auto source = ptx::global(params.input) + column;
    const int32_t row = block_row();
    ByteBlock block;
#pragma unroll
    for (int32_t i = 0; i < kBlockBytes; ++i) {
      const bool exists = has_column && row + i < count_;
      const int64_t from =
          exists ? input_row<kSections, kSectionRows, kInterleaved>(first_ + row + i) : 0;
      const auto run = ptx::as<const Bytes16>(source + from * kRowBytes);
      block.row[i] = exists ? ptx::load_streaming(run) : Bytes16{};
    }
    return block;
  }

 private:
  int64_t first_;
  int32_t count_;
};

}  // namespace moejit::device
