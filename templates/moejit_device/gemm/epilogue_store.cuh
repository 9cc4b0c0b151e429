// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rounds a tile to bf16 and stores it; pad rows get zeros.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/params/grouped_gemm_params.h"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

template <typename Problem, typename Shape>
class EpilogueStoreBf16 {
 public:
  // All lanes call. Rows from tile.padded_rows and columns from tile.columns on are untouched.
  MOEJIT_DEVICE static void run(const GroupedGemmParams& params, const GemmTile& tile,
                                const Accumulators<Shape>& sum) {
    const int32_t lane = ptx::lane_index();
    const int32_t column = warp_column<Shape>() + lane % 4 * 8;
    const auto corner = ptx::global(params.d) + static_cast<int64_t>(tile.first_row) * Problem::kN +
                        tile.first_column;
#pragma unroll
    for (int32_t half_row = 0; half_row < 2 * Shape::kFragmentsM; ++half_row) {
      const int32_t row = warp_row<Shape>() + half_row * 8 + lane / 4;
#pragma unroll
      for (int32_t quad = 0; quad < Shape::kFragmentsN / 4; ++quad) {
        Bytes16 bytes;
#pragma unroll
        for (int32_t j = 0; j < 4; ++j) {
          const float(&value)[4] = sum.value[half_row / 2][4 * quad + j];
          const int32_t first = half_row % 2 * 2;
          // Pad rows may hold 0 * NaN, so zero is chosen, not computed.
          bytes.word[j] =
              row < tile.rows ? ptx::bf16_pair(value[first], value[first + 1]) : uint32_t{0};
        }
        transpose_quad(bytes);
        if (row < tile.padded_rows && column + 32 * quad < tile.columns) {
          const int64_t offset = static_cast<int64_t>(row) * Problem::kN + column + 32 * quad;
          ptx::store(ptx::as<Bytes16>(corner + offset), bytes);
        }
      }
    }
  }

 private:
  // Lanes 4r to 4r + 3 hold one row: word j of lane q is columns 8j + 2q and the next. Afterwards
  // lane q holds columns 8q to 8q + 7, which it stores at once.
  MOEJIT_DEVICE static void transpose_quad(Bytes16& bytes) {
    exchange<1>(bytes.word[0], bytes.word[1]);
    exchange<1>(bytes.word[2], bytes.word[3]);
    exchange<2>(bytes.word[0], bytes.word[2]);
    exchange<2>(bytes.word[1], bytes.word[3]);
  }

  // Swaps `high` of the lane whose kMask bit is clear with `low` of the lane where it is set.
  template <int32_t kMask>
  MOEJIT_DEVICE static void exchange(uint32_t& low, uint32_t& high) {
    const bool is_high_lane = (ptx::lane_index() & kMask) != 0;
    const uint32_t received = ptx::shuffle_xor(is_high_lane ? low : high, kMask);
    low = is_high_lane ? received : low;
    high = is_high_lane ? high : received;
  }
};

}  // namespace moejit::device
