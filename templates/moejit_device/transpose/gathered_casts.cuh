// SPDX-License-Identifier: Apache-2.0
#pragma once

// bf16 rows, gathered from tokens, to permuted e4m3 rows with a scale for 128 columns of each, and
// to the operand of wgrad that has a scale for 128 tokens of each column: values are cast twice,
// from one read. The bits are those of the row chain that casts and permutes, and of the
// column-wise cast. A tile of 128 rows by 128 columns has all that either scale follows from.
//
// A CTA of 128 threads copies its tile to shared memory, all of it at once, so that an SM has four
// tiles or more on their way. Eight lanes take a row segment as soon as they have it, and store its
// quantized row. Then each pair of warps takes 64 columns, as in the column-wise cast.
//
// A row of a token is read by the CTAs of all its experts. Tiles are taken in narrow bands
// (transpose/row_source.cuh), so that L2 holds the tokens' parts until the last of them has.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/transpose/gathered_casts.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kLocalExperts = 8;
//   constexpr int32_t kColumns = 7168;
//   constexpr bool kZeroes = false;  // whether rows of ~token are zeros: of x, not of gradients
//   constexpr uint32_t kEpsilonBits = 0x00000000u;  // 0
//   constexpr int32_t kThreads = 128;
//
//   using Kernel = GatheredCasts<kLocalExperts, kColumns, kZeroes, kEpsilonBits, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_permute_columns_...,
//                 CastTransposeParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/params/cast_transpose_params.h"
#include "moejit_device/ptx/async_copy.cuh"
#include "moejit_device/stage/quantize_rounded.cuh"
#include "moejit_device/stage/store_rows.cuh"
#include "moejit_device/transpose/permuted_tile.cuh"
#include "moejit_device/transpose/row_source.cuh"
#include "moejit_device/transpose/staged_tiles.cuh"
#include "moejit_device/transpose/tile_place.cuh"

namespace moejit::device {

template <int32_t kGroups, int32_t kColumns, bool kZeroes, uint32_t kEpsilonBits, int32_t kThreads_>
struct GatheredCasts {
  static_assert(kThreads_ == 128, "two pairs of warps have 64 columns of a tile each");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kPairs = kThreads / 64;
  // For the launch bounds: leaves a thread the registers that its block and its work need.
  static constexpr int32_t kCtasPerSm = 512 / kThreads;
  using Staged = StagedTiles<1>;
  static constexpr int32_t kSharedBytes = Staged::kBytes + kPairs * kPairSlotBytes;

  // As many CTAs as there are tiles, or more.
  MOEJIT_DEVICE static void run(const CastTransposeParams& params) {
    if (has_other_tokens(params.call)) return;
    const Place place =
        Place::of(static_cast<uint32_t>(ptx::cta_index()), static_cast<uint32_t>(ptx::cta_count()),
                  static_cast<uint32_t>(params.output_columns / 128));
    if (!place.exists()) return;
    const RowTile rows = find_row_tile<kGroups>(params, place.row * 128);
    if (rows.is_past_the_end) return;
    const Tile tile(params, rows, place.column);
    if (tile.existing <= 0 && rows.count <= 0) return;
    copy_rows(params, tile);
    cast_rows<0>(params, tile);
    ptx::sync_cta();  // all rows are there
    if (rows.count > 0) cast_columns(params, tile, place.row);
  }

 private:
  using Place =
      TilePlace<ceil_div(kColumns, kSegmentColumns), GatheredRowsOfAll<kColumns>::kBandTiles>;
  using Tile = PermutedTile<kColumns>;
  using Quantize = Quantize1x128Rounded<kEpsilonBits>;
  static constexpr int32_t kRowsPerTurn = kThreads / kSegmentLanes;
  static constexpr int32_t kTurns = 128 / kRowsPerTurn;

  // Returns this lane's row of the tile.
  MOEJIT_DEVICE static int32_t row_of_turn(int32_t turn) {
    return turn * kRowsPerTurn + ptx::thread_index() / kSegmentLanes;
  }

  // Starts the copies of this thread's parts of all turns, a group each: zeros where there is no
  // value.
  MOEJIT_DEVICE static void copy_rows(const CastTransposeParams& params, const Tile& tile) {
    int32_t told[kTurns];
#pragma unroll
    for (int32_t turn = 0; turn < kTurns; ++turn) {
      const SegmentPosition<kColumns> at = tile.position(row_of_turn(turn));
      told[turn] = at.is_real() ? ptx::load(ptx::global(params.row_tokens) + at.row) : 0;
    }
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
#pragma unroll
    for (int32_t turn = 0; turn < kTurns; ++turn) {
      const int32_t row = row_of_turn(turn);
      const SegmentPosition<kColumns> at = tile.position(row);
      const int64_t token = told[turn] < 0 ? ~told[turn] : told[turn];
      const bool has_values = at.is_real() && (!kZeroes || told[turn] >= 0);
#pragma unroll
      for (int32_t run = 0; run < 2; ++run) {
        const int32_t column = run_column(run);
        ptx::copy_async_16(Staged::at(0, row, run * kSegmentLanes + segment_lane()),
                           ptx::as<const Bytes16>(input + at.offset_in_row(token, column)),
                           has_values && at.is_inside(column));
      }
      ptx::commit_async_copies();
    }
  }

  // Stores the quantized rows of the turns from kTurn on, in the order of their copies; a lane
  // reads what it has copied itself.
  template <int32_t kTurn>
  MOEJIT_DEVICE static void cast_rows(const CastTransposeParams& params, const Tile& tile) {
    if constexpr (kTurn < kTurns) {
      const int32_t row = row_of_turn(kTurn);
      const SegmentPosition<kColumns> at = tile.position(row);
      ptx::wait_async_copies<kTurns - 1 - kTurn>();
      const QuantizedSegment segment = Quantize::apply(Staged::load(0, row));
      store_quantized(params.output, params.output_scale_inv, at,
                      at.is_real() ? segment : QuantizedSegment{});
      cast_rows<kTurn + 1>(params, tile);
    }
  }

  MOEJIT_DEVICE static void cast_columns(const CastTransposeParams& params, const Tile& tile,
                                         int64_t tile_row) {
    const int32_t pair = ptx::warp_index() / 2;
    const int32_t row = ptx::warp_index() % 2 * 64 + block_row();
    const int32_t column = tile.column * 128 + pair * kPairColumns + value_column();
    const ValueBlock block = Staged::load_block(0, row, pair);
    const auto slots =
        ptx::shared<Bytes16>(static_cast<uint32_t>(Staged::kBytes + pair * kPairSlotBytes));
    BlockScale scale[kValueBlockColumns];
    block.template find_scales<kEpsilonBits>(slots, 1 + pair, scale);
    if (kColumns % kSegmentColumns != 0 && column >= kColumns) return;
    block.store_columns(
        scale, ptx::global(params.output_colwise) + ((tile_row * kColumns + column) * 128 + row));
    if (row == 0) {
      store_scales(scale,
                   column_scale(params.output_colwise_scale_inv, kColumns, tile_row, column));
    }
  }
};

}  // namespace moejit::device
