// SPDX-License-Identifier: Apache-2.0
#pragma once

// The column-wise cast with known scales: bf16 rows become e4m3 columns, each multiplied with the
// scale that a column has in its group. Values never go through another thread: two warps hold 64
// columns of a tile, 64 rows each, in the arrangement of value_block.cuh, and share nothing.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/transpose/scaled_column_cast.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kGroups = 8;
//   constexpr int32_t kColumns = 7168;
//   constexpr int32_t kRowBytes = 14336;
//   constexpr int32_t kThreads = 128;
//
//   using Kernel = ScaledColumnCast<ExpertRows<kGroups>, kColumns, RowsInOrder<kRowBytes>,
//                                   kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_..., TransposeParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/transpose/column_groups.cuh"
#include "moejit_device/transpose/row_source.cuh"
#include "moejit_device/transpose/tile_place.cuh"
#include "moejit_device/transpose/value_block.cuh"

namespace moejit::device {

template <typename Groups, int32_t kColumns, typename Source, int32_t kThreads_>
struct ScaledColumnCast {
  static_assert(kColumns > 0 && kColumns % 16 == 0, "rows begin at multiples of 16 bytes");
  static_assert(kThreads_ % 64 == 0, "two warps hold a half of a tile");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kPairs = kThreads / 64;
  static constexpr int32_t kSharedBytes = 0;
  // For the launch bounds: leaves a thread the registers that its block and its work need.
  static constexpr int32_t kCtasPerSm = larger(512 / kThreads, int32_t{1});

  // The grid has at least one CTA for every kPairs halves of the tiles that the call may fill, or
  // CTAs walk.
  MOEJIT_DEVICE static void run(const TransposeParams& params) {
    if (Groups::are_skipped(params)) return;
    const auto ctas = static_cast<uint32_t>(ptx::cta_count());
    for (auto cta = static_cast<uint32_t>(ptx::cta_index());; cta += ctas) {
      const Place place = Place::of(cta * kPairs + static_cast<uint32_t>(pair()), ctas * kPairs,
                                    Groups::tiles(params));
      if (!place.exists()) return;
      const RowTile rows = Groups::tile(params, place.row);
      if (rows.count > 0) cast(params, rows, place);
      if constexpr (!Groups::kWalks) return;
    }
  }

 private:
  using Place = TilePlace<ceil_div(kColumns, kPairColumns), Source::kBandTiles>;

  MOEJIT_DEVICE static int32_t pair() { return kPairs == 1 ? 0 : ptx::warp_index() / 2; }

  MOEJIT_DEVICE static void cast(const TransposeParams& params, const RowTile& rows,
                                 const Place& place) {
    const int32_t half = ptx::warp_index() % 2 * 64;
    const int32_t column = place.column * kPairColumns + value_column();
    const bool has_column = kColumns % kPairColumns == 0 || column < kColumns;
    const Source source(params, rows.first + half, rows.count - half);
    const ValueBlock block{source.fetch_block(params, 2 * column, has_column)};
    const int32_t row = half + block_row();
    if (!has_column || !Groups::has_columns(rows, row)) return;
    BlockScale scale[kValueBlockColumns];
    load_scales(ptx::global(params.input_scale_inv) + (int64_t{rows.group} * kColumns + column),
                scale);
    const int64_t offset = Groups::template offset<kColumns>(rows, place.row, column) + row;
    block.template store_columns<Groups::kPitch>(scale, ptx::global(params.output) + offset);
  }
};

}  // namespace moejit::device
