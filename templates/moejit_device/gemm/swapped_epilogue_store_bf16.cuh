// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rounds the sums of swapped tiles to bf16 and stores them; pad rows get zeros.
//
// A warpgroup has 64 columns of D as rows of its sums. stmatrix transposes them on the way into a
// panel [rows][64 columns] of its own, swizzled so that eight rows touch all banks. From there
// threads copy the real rows, which are few and belong to nobody's box.

#include "moejit_device/gemm/copy_rows_out.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/matrix_store.cuh"

namespace moejit::device {

template <typename Problem>
class SwappedEpilogueStoreBf16 {
 public:
  template <typename Shape>
  static constexpr int32_t kStagingBytes = Shape::kMathWarpgroups* Shape::kRows * 64 * 2;

  static constexpr bool kHasStorers = false;

  // `staging` is the warpgroup's own.
  MOEJIT_DEVICE explicit SwappedEpilogueStoreBf16(ptx::SharedPtr<Bytes16> staging)
      : staging_(staging) {}

  // All threads of a math warpgroup.
  template <int32_t kW, typename Params>
  MOEJIT_DEVICE void run(const Params& params, const GemmTile& tile, const WarpgroupPart& part,
                         const float (&sums)[kW / 2]) const {
    const int32_t barrier = 1 + ptx::warp_index() / 4;
    // All threads have copied the rows of the tile before.
    ptx::sync_named(barrier, ptx::kWarpgroupThreads);
    stage<kW>(staging_, sums);
    ptx::sync_named(barrier, ptx::kWarpgroupThreads);  // the panel is written
    copy_rows_out<Problem, 64, 4>(params, tile, part, tile.rows, tile.padded_rows, staging_);
  }

  // Before the CTA ends.
  MOEJIT_DEVICE void finish() const {}

 private:
  // 16-byte chunk c of row r lies at chunk c ^ (r % 8) of that row. A warp has 16 columns, two
  // chunks; one stmatrix takes both of 16 rows.
  template <int32_t kW>
  MOEJIT_DEVICE static void stage(ptx::SharedPtr<Bytes16> staging, const float (&sums)[kW / 2]) {
    const int32_t lane = ptx::lane_index();
    const int32_t chunk = (ptx::warp_index() % 4 * 2 + lane / 8 % 2) ^ (lane % 8);
    const auto row = staging + ((lane / 16 * 8 + lane % 8) * 8 + chunk);
#pragma unroll
    for (int32_t j = 0; j < kW / 8; j += 2) {
      const float* x = sums + 4 * j;
      const ptx::MatrixFragments f = {{ptx::bf16_pair(x[0], x[1]), ptx::bf16_pair(x[2], x[3]),
                                       ptx::bf16_pair(x[4], x[5]), ptx::bf16_pair(x[6], x[7])}};
      ptx::store_matrices_transposed(row + j * 64, f);
    }
  }

  ptx::SharedPtr<Bytes16> staging_;
};

}  // namespace moejit::device
