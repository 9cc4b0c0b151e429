// SPDX-License-Identifier: Apache-2.0
#pragma once

// The load stage that sums a token's permuted rows.

#include "moejit_device/map/descending_rows.cuh"
#include "moejit_device/stage/contract.cuh"

namespace moejit::device {

// fp32 sum of the bf16 rows of a token, in descending row order, from 0; a token without rows
// gives 0. Uses input [P, C], row_map [T, K].
//
// Four rows are in flight at a time. With eight, half as many threads have room on an SM: that is
// as fast where all eight are there, and a seventh slower where, as on one rank of many, most are
// not. A sorted list of more than eight rows takes registers that so many threads do not have.
template <int32_t kColumns_, int32_t kTopK, int32_t kRowsInFlight_ = 4>
struct LoadCombinedRows {
  static_assert(kTopK > 0, "a token is routed to at least one expert");

  static constexpr int32_t kColumns = kColumns_;
  static constexpr int32_t kSegmentsInFlight = 1;  // the rows of one segment are many loads
  static constexpr int32_t kThreadsPerSm = kTopK <= 8 ? 1024 : 768;
  static constexpr int32_t kRowsInFlight = smaller(kTopK, kRowsInFlight_);
  using Fetched = ValueSegment;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    DescendingRows<kTopK> rows(ptx::global(params.row_map) + at.row * kTopK, at.is_real());
    Fetched sum = {};
    constexpr int32_t kWhole = kTopK / kRowsInFlight * kRowsInFlight;
#pragma unroll kUnrolled
    for (int32_t k = 0; k < kWhole; k += kRowsInFlight) {
      add_next<kRowsInFlight>(params, at, rows, sum);
    }
    if constexpr (kTopK > kWhole) add_next<kTopK - kWhole>(params, at, rows, sum);
    return sum;
  }
  MOEJIT_DEVICE static ValueSegment unpack(const Fetched& fetched) { return fetched; }

 private:
  // The sorted list is indexed by compile-time constants; longer lists are scanned in a loop.
  static constexpr int32_t kUnrolled = kTopK <= 32 ? ceil_div(kTopK, kRowsInFlight) : 1;

  // The next kCount rows.
  template <int32_t kCount>
  MOEJIT_DEVICE static void add_next(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at,
                                     DescendingRows<kTopK>& rows, Fetched& sum) {
    int32_t row[kCount];
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) row[i] = rows.next();
    int32_t any = row[0];  // of the warp
#pragma unroll
    for (int32_t mask = kSegmentLanes; mask < 32; mask *= 2) {
      any = larger(any, ptx::shuffle_xor(any, mask));
    }
    if (any >= 0) add<kCount>(params, at, row, any, sum);
  }

  // Adds the first kCount rows of those given. Rows of -1 come last; where no lane has others, half
  // as many are loaded. Else `any` is read in their place, which another lane has: loads that
  // depend on a condition of their own would be started one by one.
  template <int32_t kCount, int32_t kGiven>
  MOEJIT_DEVICE static void add(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                const int32_t (&row)[kGiven], int32_t any, Fetched& sum) {
    if constexpr (kCount > 1) {
      constexpr int32_t kHalf = kCount / 2;
      if (ptx::ballot(row[kHalf] >= 0) == 0) return add<kHalf>(params, at, row, any, sum);
    }
    const auto input = ptx::global(static_cast<const Bf16*>(params.input));
    SegmentPosition<kColumns> from = at;
    from.index = smaller(at.index, at.kPerRow - 1);  // absent ones may lie behind a row
    Bf16Segment segment[kCount];
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) {
      segment[i] = fetch_runs(input, from, row[i] >= 0 ? row[i] : any, true);
    }
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) {
      // This is add_values() of core/segment_sum.cuh, written out: with a call of it NVRTC 13.0
      // orders the instructions of most of these kernels otherwise.
      const ValueSegment values = unpack_bf16(segment[i]);
#pragma unroll
      for (int32_t v = 0; v < kLaneColumns; ++v) {
        if (row[i] >= 0) sum.value[v] = ptx::add(sum.value[v], values.value[v]);
      }
    }
  }
};

}  // namespace moejit::device
