// SPDX-License-Identifier: Apache-2.0
#pragma once

// bf16 rows, gathered from tokens, to permuted FP8 rows and to the operand of wgrad that has the
// same bytes by columns, [Pc / 128, C, 128]: each expert's scale is known beforehand, so one read
// makes both. Blocks restart at every group.
//
// 256 threads hold a tile of 128 rows by 128 columns as in the multi-cast-transpose: eight lanes
// have a row segment, a lane the same columns of four rows that follow each other; 4x4 bytes are
// transposed in registers, and a tile in shared memory brings the words of a column together. All
// loads of a tile are in flight at once. As the scale is known, rows leave as soon as they are
// cast. The only barrier is in the exchange through shared memory, which the tile's largest
// magnitude takes too.
//
// A row of a token is read by the CTAs of all its experts. Tiles are taken in narrow bands
// (transpose/row_source.cuh), so that L2 holds the tokens' parts until the last of them has.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/cast/cast_transpose.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kLocalExperts = 8;
//   constexpr int32_t kColumns = 7168;
//   constexpr bool kZeroes = false;  // whether rows of ~token are zeros: of x, not of gradients
//   constexpr bool kStoresRows = true;
//   constexpr int32_t kAmaxStride = 2;
//   constexpr int32_t kAmaxFirst = 0;
//   constexpr int32_t kThreads = 256;
//
//   using Kernel = CastTranspose<kLocalExperts, kColumns, E5m2, kZeroes, kStoresRows,
//                                ColumnOfExpert<kAmaxStride, kAmaxFirst>, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_permute_transpose_...,
//                 CastTransposeParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/cast/cast_input.cuh"
#include "moejit_device/cast/raise_amax.cuh"
#include "moejit_device/core/byte_transpose.cuh"
#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/params/cast_transpose_params.h"
#include "moejit_device/stage/max_of_cta.cuh"
#include "moejit_device/transpose/output_groups.cuh"
#include "moejit_device/transpose/row_source.cuh"
#include "moejit_device/transpose/tile_place.cuh"

namespace moejit::device {

template <int32_t kGroups, int32_t kColumns, typename Format, bool kZeroes, bool kStoresRows,
          typename Amax, int32_t kThreads_>
struct CastTranspose {
  static_assert(kColumns > 0 && kColumns % 16 == 0, "rows begin at multiples of 16 bytes");
  static_assert(kThreads_ == 256, "256 threads hold a tile, four rows a lane");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kCtasPerSm = Bf16Input::kThreadsPerSm / kThreads;
  static constexpr int32_t kSharedBytes = ByteTile::kBytes + 4 * kWarps;

  // As many CTAs as there are tiles, or more.
  MOEJIT_DEVICE static void run(const CastTransposeParams& params) {
    if (has_other_tokens(params.call)) return;
    const Place place =
        Place::of(static_cast<uint32_t>(ptx::cta_index()), static_cast<uint32_t>(ptx::cta_count()),
                  static_cast<uint32_t>(params.output_columns / 128));
    if (!place.exists()) return;
    const RowTile rows = find_row_tile<kGroups>(params, place.row * 128);
    if (rows.is_past_the_end) return;
    const int64_t end =
        smaller(int64_t{ptx::load(ptx::global(params.offs) + (rows.group + 1))}, params.rows);
    const auto existing = static_cast<int32_t>(smaller(end - rows.first, int64_t{128}));
    if (existing <= 0 && rows.count <= 0) return;
    const float amax = max_of_cta<kWarps>(ptx::shared<float>(ByteTile::kBytes),
                                          cast_rows(params, rows, existing, place.column * 128));
    if (rows.count > 0) store_columns(params, place.row, place.column * 128);
    if (Amax::kIsRecorded && ptx::thread_index() == 0) Amax::raise(params.amax, rows.group, amax);
  }

 private:
  using Place =
      TilePlace<ceil_div(kColumns, kSegmentColumns), GatheredRowsOfAll<kColumns>::kBandTiles>;
  static constexpr int32_t kLaneRows = 4;

  MOEJIT_DEVICE static ByteTile staged() { return {ptx::shared<uint32_t>(0)}; }

  // Casts the tile, stores its rows (pad rows as zeros) and stages the tile for store_columns().
  // Returns the largest magnitude that this lane saw.
  MOEJIT_DEVICE static float cast_rows(const CastTransposeParams& params, const RowTile& tile,
                                       int32_t existing, int32_t first_column) {
    const int32_t quad = ptx::thread_index() / kSegmentLanes;
    const int32_t first = kLaneRows * quad;
    const int32_t columns = kColumns - first_column;  // from there on
    const auto input = ptx::global(static_cast<const Bf16*>(params.input)) + first_column;
    Bf16Segment segment[kLaneRows];
#pragma unroll
    for (int32_t i = 0; i < kLaneRows; ++i) {
      const bool is_real = first + i < tile.count;
      const auto tokens = ptx::global(params.row_tokens) + (tile.first + first + i);
      const int32_t told = is_real ? ptx::load(tokens) : 0;
      const int64_t token = told < 0 ? ~told : told;
      const bool has_values = is_real && (!kZeroes || told >= 0);
      segment[i] = fetch(input + token * kColumns, has_values ? columns : 0);
    }
    const float scale = ptx::load(ptx::global(params.expert_scales) + tile.group);
    const int32_t column = byte_column();
    Bytes16 row[kLaneRows];
#pragma unroll
    for (int32_t i = 0; i < kLaneRows; ++i) {
      row[i] = Bf16Input::template cast<Format>(segment[i], scale);
      if (kStoresRows && first + i < existing && column < columns) {
        const auto output = ptx::global(params.output) + (tile.first + first + i) * kColumns;
        ptx::store_streaming(ptx::as<Bytes16>(output + (first_column + column)), row[i]);
      }
    }
    staged().store_rows(column, quad, row);
    return Amax::kIsRecorded ? Bf16Input::max_magnitude(segment) : 0.0f;
  }

  // The first `columns` columns of a segment, zeros behind. Other CTAs read it too.
  MOEJIT_DEVICE static Bf16Segment fetch(ptx::GlobalPtr<const Bf16> first, int32_t columns) {
    Bf16Segment segment = {};
#pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
      if (run_column(run) >= columns) continue;
      segment.run[run] = ptx::load(ptx::as<const Bytes16>(first + run_column(run)));
    }
    return segment;
  }

  // Eight lanes take each column of the staged tile.
  MOEJIT_DEVICE static void store_columns(const CastTransposeParams& params, int64_t tile_row,
                                          int32_t first_column) {
    constexpr int32_t kColumnsAtATime = kThreads / 8;
    const int32_t run = ptx::thread_index() % 8;
    const auto output = ptx::global(params.output_colwise) +
                        ((tile_row * kColumns + first_column) * 128 + 16 * run);
#pragma unroll
    for (int32_t i = 0; i < ByteTile::kColumns; i += kColumnsAtATime) {
      const int32_t column = i + ptx::thread_index() / 8;
      if (kColumns % ByteTile::kColumns != 0 && first_column + column >= kColumns) return;
      ptx::store_streaming(ptx::as<Bytes16>(output + column * 128), staged().load_run(column, run));
    }
  }
};

}  // namespace moejit::device
