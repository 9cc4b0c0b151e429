// SPDX-License-Identifier: Apache-2.0
#pragma once

// The way from staged panels to D, or to its activation Q, for rows that no box of a tensor copy
// fits.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// Stores the first `rows` rows and kColumns columns of a part; columns beyond the section are left
// out. Panels of 64 rows and 64 columns lie behind each other from `staging` on: 16-byte chunk c of
// row r at chunk c ^ (r % 8) of that row. Rows from `staged_rows` on become zeros. All threads of a
// math warpgroup. Where few tiles leave this way, a loop that is not unrolled saves compile time.
template <typename Problem, int32_t kColumns, int32_t kUnroll = 1, typename Params>
MOEJIT_DEVICE void copy_rows_out(const Params& params, const GemmTile& tile,
                                 const WarpgroupPart& part, int32_t staged_rows, int32_t rows,
                                 ptx::SharedPtr<Bytes16> staging) {
  constexpr int32_t kRowChunks = kColumns / 8;
  constexpr int32_t kPanelChunks = 64 * 8;
  const int32_t column = tile.column + part.column;
  const auto to =
      ptx::global(params.d) + (static_cast<int64_t>(tile.d_row + part.row) * Problem::kN +
                               tile.section * Problem::kSectionN + column);
#pragma unroll kUnroll
  for (int32_t i = ptx::made_here(ptx::thread_index() % ptx::kWarpgroupThreads);
       i < rows * kRowChunks; i += ptx::kWarpgroupThreads) {
    const int32_t row = i / kRowChunks;
    const int32_t chunk = i % kRowChunks;
    if (column + 8 * chunk >= Problem::kSectionN) continue;
    Bytes16 bytes = {};
    if (row < staged_rows) {
      bytes = ptx::load(staging + (chunk / 8 * kPanelChunks + row * 8 + (chunk % 8 ^ row % 8)));
    }
    ptx::store(ptx::as<Bytes16>(to + (static_cast<int64_t>(row) * Problem::kN + 8 * chunk)), bytes);
  }
}

// Stores a warpgroup's 64 bytes of each row of a gated swapped tile's activation, as elements T;
// columns beyond the section are left out. They lie row after row from `staging` on: 16-byte chunk
// c of row r at chunk c ^ (r / 2 % 4) of that row. Pad rows become zeros. All threads of the
// warpgroup.
template <typename Problem, typename T, int32_t kUnroll, typename Params>
MOEJIT_DEVICE void copy_activation_out(const Params& params, const GemmTile& tile,
                                       const WarpgroupPart& part, ptx::SharedPtr<Bytes16> staging) {
  constexpr int32_t kRowChunks = 4;
  constexpr int32_t kElements = 16 / static_cast<int32_t>(sizeof(T));  // of a chunk
  const int32_t column = tile.column + part.column / 2;
  const auto to = ptx::as<T>(ptx::global(params.q)) +
                  (static_cast<int64_t>(tile.d_row) * Problem::kSectionN + column);
#pragma unroll kUnroll
  for (int32_t i = ptx::made_here(ptx::thread_index() % ptx::kWarpgroupThreads);
       i < tile.padded_rows * kRowChunks; i += ptx::kWarpgroupThreads) {
    const int32_t row = i / kRowChunks;
    const int32_t chunk = i % kRowChunks;
    if (column + kElements * chunk >= Problem::kSectionN) continue;
    Bytes16 bytes = {};
    if (row < tile.rows) {
      bytes = ptx::load(staging + (row * kRowChunks + (chunk ^ (row / 2 % 4))));
    }
    ptx::store(
        ptx::as<Bytes16>(to + (static_cast<int64_t>(row) * Problem::kSectionN + kElements * chunk)),
        bytes);
  }
}

}  // namespace moejit::device
