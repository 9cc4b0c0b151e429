// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rounds sums to bf16 and stores them; pad rows get zeros.
//
// Each warpgroup has its own staging buffer, barrier and stores, so that one can multiply while the
// other stores. A buffer holds panels of 64 rows and 64 columns, swizzled like any box of 128-byte
// rows. Full parts leave by tensor copies, which run on below the next tile's products. At the
// ragged end of a group, where the rows behind belong to the next one, threads copy what is theirs,
// and so they do where there are no tensor copies.

#include "moejit_device/gemm/copy_rows_out.cuh"
#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/copy_lanes.cuh"
#include "moejit_device/ptx/matrix_store.cuh"

namespace moejit::device {

// kTailRows as in GemmTileShape.
template <typename Problem, int32_t kTailRows = 64>
class EpilogueStoreBf16 {
  static constexpr int32_t kPanelChunks = 64 * 128 / 16;  // 64 rows of 128 bytes
  // Returns how many of a part's columns are staged at once.
  MOEJIT_DEVICE static constexpr int32_t staged_columns(int32_t columns) {
    return columns > kMostStagedColumns ? columns / 2 : columns;
  }

 public:
  template <typename Shape>
  static constexpr int32_t kStagingBytes = Shape::kMathWarpgroups * 64 * 2 *
                                           staged_columns(Shape::kTileColumns /
                                                          Shape::kTileSections);

  static constexpr bool kHasStorers = false;

  // `staging` is the warpgroup's own.
  MOEJIT_DEVICE explicit EpilogueStoreBf16(ptx::SharedPtr<Bytes16> staging) : staging_(staging) {}

  // Finishes the stores. Called before the CTA ends.
  MOEJIT_DEVICE void finish() const {
    if (ptx::thread_index() % ptx::kWarpgroupThreads < ptx::kCopyLanes)
      ptx::wait_tensor_stores<0>();
  }

  // All threads of a math warpgroup. sums [kW / 2], of columns of one section.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void run(const Params& params, const GemmTile& tile, const WarpgroupPart& part,
                         const float* sums) const {
    if constexpr (staged_columns(kW) == kW) {
      store<kW>(params, tile, part, sums);
    } else {
      GemmTile second = tile;
      second.column += kW / 2;
      store<kW / 2>(params, tile, part, sums);
      store<kW / 2>(params, second, part, sums + kW / 4);
    }
  }

 private:
  // Stages and stores all columns of a part.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void store(const Params& params, const GemmTile& tile, const WarpgroupPart& part,
                           const float* sums) const {
    const bool is_tail = kTailRows > 0 && part.is_tail;
    const int32_t barrier = 1 + ptx::warp_index() / 4;
    const bool copies = ptx::thread_index() % ptx::kWarpgroupThreads < ptx::kCopyLanes;
    if (copies) ptx::wait_tensor_stores_read<0>();
    // The stores before have read the staging buffer, and so have all threads.
    ptx::sync_named(barrier, ptx::kWarpgroupThreads);
    stage<kW>(staging_, sums);
    if (tile.rows - part.row < 64) zero_rows<kW>(staging_, tile.rows - part.row);
    const bool is_box = !ptx::kThreadsCopy && !is_tail && tile.padded_rows >= part.row + 64;
    if (is_box) ptx::fence_proxy_async();
    ptx::sync_named(barrier, ptx::kWarpgroupThreads);  // the panels are written
    if (!is_box) {
      // Rows from 64 on are here only below a tail, and are pad rows.
      const int32_t rows = is_tail ? tile.padded_rows : smaller(tile.padded_rows - part.row, 64);
      copy_rows_out<Problem, kW, ptx::kThreadsCopy ? 4 : 1>(params, tile, part, 64, rows, staging_);
    } else if (copies) {
#pragma unroll
      for (int32_t panel = 0; panel < kW / 64; ++panel) {
        ptx::store_tensor_3d(params.d_map, staging_ + panel * kPanelChunks,
                             tile.column + 64 * panel, tile.section, tile.d_row + part.row);
      }
      ptx::commit_tensor_stores();
    }
  }

  // 16-byte chunk c of row r of a panel lies at chunk c ^ (r % 8) of that row.
  template <int32_t kW>
  MOEJIT_DEVICE static void stage(ptx::SharedPtr<Bytes16> staging, const float* sums) {
    const int32_t lane = ptx::lane_index();
    const int32_t first_row = ptx::warp_index() % 4 * 16;
    const auto row = staging + (first_row + lane % 16) * 8;
#pragma unroll
    for (int32_t j = 0; j < kW / 8; j += 2) {
      const float* x = sums + 4 * j;
      const ptx::MatrixFragments f = {{ptx::bf16_pair(x[0], x[1]), ptx::bf16_pair(x[2], x[3]),
                                       ptx::bf16_pair(x[4], x[5]), ptx::bf16_pair(x[6], x[7])}};
      const int32_t chunk = (j % 8 + lane / 16) ^ (lane % 8);
      ptx::store_matrices(row + (j / 8 * kPanelChunks + chunk), f);
    }
  }

  // Rows from `rows` on, which may be negative, are pad rows. Their sums may be 0 * NaN, so they
  // are replaced, each warp's by the warp that staged them.
  template <int32_t kW>
  MOEJIT_DEVICE static void zero_rows(ptx::SharedPtr<Bytes16> staging, int32_t rows) {
    const int32_t warp_row = ptx::made_here(ptx::thread_index()) / 32 % 4 * 16;
    const auto warp_staging = staging + warp_row * 8;
    ptx::sync_warp();  // all lanes have staged
#pragma unroll 1
    for (int32_t i = larger(rows - warp_row, 0) * 8 + ptx::made_here(ptx::lane_index()); i < 16 * 8;
         i += 32) {
#pragma unroll
      for (int32_t panel = 0; panel < ceil_div(kW, 64); ++panel) {
        ptx::store(warp_staging + (panel * kPanelChunks + i), Bytes16{});
      }
    }
  }

  ptx::SharedPtr<Bytes16> staging_;
};

}  // namespace moejit::device
