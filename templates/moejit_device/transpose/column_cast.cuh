// SPDX-License-Identifier: Apache-2.0
#pragma once

// The column-wise cast: bf16 rows [P, C] become e4m3 columns with one scale for the 128 tokens of a
// column. The columns lie in blocks of 128, [Pc / 128, C, 128], and blocks restart at every group,
// so the last of a group may have fewer tokens. The rows may be rows of tokens, gathered on the
// way.
//
// Memory-bound: two warps hold 64 columns of a tile, each thread 16 rows of 16 bytes, which it
// fetches with 16 loads that are all in flight at once. transpose/value_block.cuh has the
// arrangement.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/transpose/column_cast.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kGroups = 8;
//   constexpr int32_t kColumns = 7168;
//   constexpr int32_t kRowBytes = 14336;
//   constexpr uint32_t kEpsilonBits = 0x00000000u;  // 0
//   constexpr int32_t kThreads = 128;
//
//   using Kernel = ColumnCast<kGroups, kColumns, RowsInOrder<kRowBytes>, kEpsilonBits, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_..., TransposeParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/transpose/output_groups.cuh"
#include "moejit_device/transpose/row_source.cuh"
#include "moejit_device/transpose/tile_place.cuh"
#include "moejit_device/transpose/value_block.cuh"

namespace moejit::device {

template <int32_t kGroups, int32_t kColumns, typename Source, uint32_t kEpsilonBits,
          int32_t kThreads_>
struct ColumnCast {
  static_assert(kColumns > 0 && kColumns % 16 == 0, "rows begin at multiples of 16 bytes");
  static_assert(kThreads_ % 64 == 0 && kThreads_ / 64 <= 15,
                "two warps hold a half of a tile and meet at a barrier of their own");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kPairs = kThreads / 64;
  static constexpr int32_t kSharedBytes = kPairs * kPairSlotBytes;
  // For the launch bounds: leaves a thread the registers that its block and its work need.
  static constexpr int32_t kCtasPerSm = larger(512 / kThreads, int32_t{1});

  // The grid has at least one CTA for every kPairs halves of the tiles that the call may fill.
  MOEJIT_DEVICE static void run(const TransposeParams& params) {
    if (has_other_tokens(params.call)) return;
    const Place place =
        Place::of(static_cast<uint32_t>(ptx::cta_index()) * kPairs + static_cast<uint32_t>(pair()),
                  static_cast<uint32_t>(ptx::cta_count()) * kPairs,
                  static_cast<uint32_t>(params.output_columns / 128));
    if (!place.exists()) return;
    const RowTile rows = find_row_tile<kGroups>(params, place.row * 128);
    if (rows.count <= 0) return;
    cast(params, rows, place);
  }

 private:
  using Place = TilePlace<ceil_div(kColumns, kPairColumns), Source::kBandTiles>;

  // Returns the index of this pair of warps in the CTA, from which their barrier's number follows.
  MOEJIT_DEVICE static int32_t pair() { return kPairs == 1 ? 0 : ptx::warp_index() / 2; }

  MOEJIT_DEVICE static void cast(const TransposeParams& params, const RowTile& rows,
                                 const Place& place) {
    const int32_t half = ptx::warp_index() % 2;
    const int32_t column = place.column * kPairColumns + value_column();
    const bool has_column = kColumns % kPairColumns == 0 || column < kColumns;
    const Source source(params, rows.first + half * 64, rows.count - half * 64);
    const ValueBlock block{source.fetch_block(params, 2 * column, has_column)};

    BlockScale scale[kValueBlockColumns];
    const auto slots = ptx::shared<Bytes16>(static_cast<uint32_t>(pair() * kPairSlotBytes));
    block.template find_scales<kEpsilonBits>(slots, 1 + pair(), scale);
    if (!has_column) return;
    const int32_t row = half * 64 + block_row();
    block.store_columns(scale,
                        ptx::global(params.output) + ((place.row * kColumns + column) * 128 + row));
    if (row == 0) {
      store_scales(scale, column_scale(params.output_scale_inv, kColumns, place.row, column));
    }
  }
};

}  // namespace moejit::device
