// SPDX-License-Identifier: Apache-2.0
#pragma once

// The load stage that sums a token's permuted rows.

#include "moejit_device/map/descending_rows.cuh"
#include "moejit_device/stage/contract.cuh"

namespace moejit::device {

// fp32 sum of the bf16 rows of a token, in descending row order, from 0; a token without rows
// gives 0. Uses input [P, C], row_map [T, K].
template <int32_t kColumns_, int32_t kTopK, int32_t kRowsInFlight_ = 8>
struct LoadCombinedRows {
  static_assert(kTopK > 0, "a token is routed to at least one expert");

  static constexpr int32_t kColumns = kColumns_;
  static constexpr int32_t kSegmentsInFlight = 1;  // the rows of one segment are many loads
  static constexpr int32_t kThreadsPerSm = 512;
  static constexpr int32_t kRowsInFlight = smaller(kTopK, kRowsInFlight_);
  using Fetched = ValueSegment;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    DescendingRows<kTopK> rows(ptx::global(params.row_map) + at.row * kTopK, at.is_real());
    Fetched sum = {};
    constexpr int32_t kWhole = kTopK / kRowsInFlight * kRowsInFlight;
#pragma unroll kUnrolled
    for (int32_t k = 0; k < kWhole; k += kRowsInFlight) add<kRowsInFlight>(params, at, rows, sum);
    add<kTopK - kWhole>(params, at, rows, sum);
    return sum;
  }
  MOEJIT_DEVICE static ValueSegment unpack(const Fetched& fetched) { return fetched; }

 private:
  // The sorted list is indexed by compile-time constants; longer lists are scanned in a loop.
  static constexpr int32_t kUnrolled = kTopK <= 32 ? 4 : 1;

  // Adds the next kCount rows. A row of -1 adds 0, which changes no sum that started from +0.
  template <int32_t kCount>
  MOEJIT_DEVICE static void add(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                DescendingRows<kTopK>& rows, Fetched& sum) {
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
    Bf16Segment segment[kCount > 0 ? kCount : 1];
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) {
      const int32_t row = rows.next();
      segment[i] = fetch_runs(input, at, row, row >= 0);
    }
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) {
      const ValueSegment values = unpack_bf16(segment[i]);
#pragma unroll
      for (int32_t v = 0; v < kLaneColumns; ++v) {
        sum.value[v] = ptx::add(sum.value[v], values.value[v]);
      }
    }
  }
};

}  // namespace moejit::device
