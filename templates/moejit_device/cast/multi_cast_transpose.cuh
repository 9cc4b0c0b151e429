// SPDX-License-Identifier: Apache-2.0
#pragma once

// For delayed scaling: casts a list of tensors, each with a scale that is known beforehand, to FP8
// and its transpose in one launch. Also finds each tensor's largest magnitude, from which the next
// scale follows.
//
//   q[r, c] = colwise[c, r] = cast(fl(scale * x[r, c]))      amax = max(amax, |x|), NaN apart
//
// The tiles of all tensors form one list, dealt out to the CTAs in turn; the CTA looks its tile's
// tensor up by where the tiles of each end. So a launch takes any number of tensors of any sizes,
// and the list may change until the kernel reads it.
//
// 256 threads hold a tile as in the column-wise tile chain: eight lanes have a row segment, a lane
// the same columns of four rows that follow each other; 4x4 bytes are transposed in registers, and
// a tile in shared memory brings the words of a column together. All loads of a tile are in flight
// at once. As the scale is known, rows leave as soon as they are cast. The only barrier is in the
// exchange through shared memory, which the tile's largest magnitude takes too.
//
// Rows and columns that do not come in aligned runs of 16 go by single elements, at the same places
// of the same tile, each on its own: odd rows do not make columns slow.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/cast/multi_cast_transpose.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kThreads = 256;
//
//   using Kernel = MultiCastTranspose<Bf16Input, E4m3, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_multi_cast_transpose_...,
//                 MultiCastTransposeParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/cast/cast_input.cuh"
#include "moejit_device/cast/tensor_list.cuh"
#include "moejit_device/core/byte_transpose.cuh"
#include "moejit_device/stage/max_of_cta.cuh"

namespace moejit::device {

template <typename Input, typename Format, int32_t kThreads_>
struct MultiCastTranspose {
  static_assert(kThreads_ == 256, "256 threads hold a tile, four rows a lane");
  static_assert(ByteTile::kRows == kCastTile && ByteTile::kColumns == kCastTile,
                "a tile is exchanged as a whole");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kCtasPerSm = Input::kThreadsPerSm / kThreads;
  static constexpr int32_t kSharedBytes = ByteTile::kBytes + 4 * kWarps;

  MOEJIT_DEVICE static void run(const MultiCastTransposeParams& params) {
    const auto skip = ptx::global(params.skip);
    if (skip && ptx::load(skip) != 0) return;
    if (params.count == 0) return;
    // The result is not needed until the first tile is done.
    const int64_t tiles = ptx::load(ptx::global(params.tile_ends) + (params.count - 1));
    for (int64_t tile = ptx::cta_index();; tile += ptx::cta_count()) {
      const int64_t index = tensors_before(params, tile);
      if (index == params.count) return;
      cast_tile(CastTile(params, tile, index));
      if (tile + ptx::cta_count() >= tiles) return;
      // Orders the reads of the staged tile and of the slots before the next tile's writes.
      ptx::sync_cta();
    }
  }

 private:
  using Element = typename Input::Element;
  static constexpr int32_t kLaneRows = 4;

  MOEJIT_DEVICE static ByteTile staged() { return {ptx::shared<uint32_t>(0)}; }

  MOEJIT_DEVICE static void cast_tile(const CastTile& tile) {
    const float scale = tile.scale();
    const float own =
        tile.has_whole_row_runs() ? cast_rows(tile, scale) : cast_elements(tile, scale);
    // Its barrier also orders the staged tile's writes before its reads.
    const float amax = max_of_cta<kWarps>(ptx::shared<float>(ByteTile::kBytes), own);
    if (tile.has_whole_column_runs()) {
      store_columns(tile);
    } else {
      store_column_elements(tile);
    }
    if (ptx::thread_index() == 0) report(tile, amax, scale);
  }

  // Both functions cast the tile, store its rows, stage it, and return the largest magnitude that
  // they saw.
  MOEJIT_DEVICE static float cast_rows(const CastTile& tile, float scale) {
    const int32_t quad = ptx::thread_index() / kSegmentLanes;
    const int32_t rows = tile.rows() - kLaneRows * quad;
    const int32_t columns = tile.columns();
    const int64_t pitch = tile.row_pitch();
    const auto input = tile.template input<Element>() + kLaneRows * quad * pitch;
    typename Input::Segment segment[kLaneRows];
#pragma unroll
    for (int32_t i = 0; i < kLaneRows; ++i) {
      segment[i] = Input::fetch(input + i * pitch, i < rows ? columns : 0);
    }
    const int32_t column = Input::byte_column();
    const auto output = tile.output() + (kLaneRows * quad * pitch + column);
    Bytes16 row[kLaneRows];
#pragma unroll
    for (int32_t i = 0; i < kLaneRows; ++i) {
      row[i] = Input::template cast<Format>(segment[i], scale);
      if (i < rows && column < columns) {
        ptx::store_streaming(ptx::as<Bytes16>(output + i * pitch), row[i]);
      }
    }
    staged().store_rows(column, quad, row);
    return Input::max_magnitude(segment);
  }

  MOEJIT_DEVICE static float cast_elements(const CastTile& tile, float scale) {
    const auto input = tile.template input<Element>();
    const auto output = tile.output();
    constexpr int32_t kWarpColumns = kCastTile / 32;
    float amax = 0.0f;
#pragma unroll 2
    for (int32_t i = ptx::warp_index(); i < kCastTile / kLaneRows * kWarpColumns; i += kWarps) {
      const int32_t quad = i / kWarpColumns;
      const int32_t column = i % kWarpColumns * 32 + ptx::lane_index();
      const int32_t rows = column < tile.columns() ? tile.rows() - kLaneRows * quad : 0;
      float value[kLaneRows];
#pragma unroll
      for (int32_t r = 0; r < kLaneRows; ++r) {
        const auto element = input + ((kLaneRows * quad + r) * tile.row_pitch() + column);
        value[r] = r < rows ? Input::value_of(ptx::load(element)) : 0.0f;
      }
      amax = max_magnitude<kLaneRows>(value, amax);
      const uint32_t bytes = cast_quad<Format>(value, scale);
#pragma unroll
      for (int32_t r = 0; r < kLaneRows; ++r) {
        if (r >= rows) continue;
        ptx::store(output + ((kLaneRows * quad + r) * tile.row_pitch() + column),
                   static_cast<uint8_t>(bytes >> (8 * r)));
      }
      staged().store_quad(column, quad, bytes);
    }
    return amax;
  }

  // Eight lanes take each column.
  MOEJIT_DEVICE static void store_columns(const CastTile& tile) {
    constexpr int32_t kColumnsAtATime = kThreads / 8;
    const auto output = tile.output_colwise();
    const int32_t run = ptx::thread_index() % 8;
    if (16 * run >= tile.rows()) return;
#pragma unroll
    for (int32_t i = 0; i < kCastTile; i += kColumnsAtATime) {
      const int32_t column = i + ptx::thread_index() / 8;
      if (column >= tile.columns()) return;
      ptx::store_streaming(ptx::as<Bytes16>(output + (column * tile.column_pitch() + 16 * run)),
                           staged().load_run(column, run));
    }
  }

  // A warp takes 32 bytes of each column.
  MOEJIT_DEVICE static void store_column_elements(const CastTile& tile) {
    const auto output = tile.output_colwise();
    constexpr int32_t kWarpRows = kCastTile / 32;
    const int32_t row = ptx::warp_index() % kWarpRows * 32 + ptx::lane_index();
    if (row >= tile.rows()) return;
#pragma unroll 4
    for (int32_t column = ptx::warp_index() / kWarpRows; column < tile.columns();
         column += kWarps / kWarpRows) {
      ptx::store(output + (column * tile.column_pitch() + row), staged().load_byte(column, row));
    }
  }

  // Magnitudes are ordered like their bits. Where all are 0 or NaN there is nothing to raise.
  MOEJIT_DEVICE static void report(const CastTile& tile, float amax, float scale) {
    const auto to_raise = ptx::as<uint32_t>(tile.amax());
    if (to_raise && amax > 0.0f) ptx::atomic_max(to_raise, ptx::bits_of(amax));
    const auto scale_inv = tile.scale_inv();
    if (scale_inv && tile.is_first()) ptx::store(scale_inv, ptx::reciprocal(scale));
  }
};

}  // namespace moejit::device
