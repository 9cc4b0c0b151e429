// SPDX-License-Identifier: Apache-2.0
#pragma once

// Store stages of rows that have one scale each. store() gets codes, and the scale beside them.

#include "moejit_device/core/row_scaled.cuh"
#include "moejit_device/stage/store_permuted.cuh"

namespace moejit::device {

// Stores the scale of a row, from one of the lanes that hold its first segment.
template <int32_t kColumns>
MOEJIT_DEVICE void store_row_scale(float* scales, const SegmentPosition<kColumns>& at,
                                   float scale_inv) {
  if (!at.exists() || at.index != 0 || segment_lane() != 0) return;
  ptx::store(ptx::global(scales) + at.row, scale_inv);
}

// Rows where the store stage `Store` puts them, in their order; pad rows get the scale 0. Uses
// output_scale_inv [rows] and what Store uses, but for its scales.
template <typename Store>
struct StoreScaledRows {
  static constexpr int32_t kColumns = Store::kColumns;
  static constexpr bool kHasPads = Store::kHasPads;
  using Rows = typename Store::Rows;
  using Fetched = typename Store::Fetched;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    return Store::fetch(params, at);
  }
  template <typename Codes>
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& where, const Codes& codes, float scale_inv) {
    Store::store(params, at, where, codes);
    store_row_scale(params.output_scale_inv, at, at.is_real() ? scale_inv : 0.0f);
  }
  MOEJIT_DEVICE static void finish(const RowChainParams& params) { Store::finish(params); }
};

// A token's row to each of its destinations, with its scale and, with kMovesProbs, its probability;
// where that is 0, the data is zeros (the scale is kept). With kKeeps row t is also written to row
// t of kept_output [T, C] and kept_scale_inv [T]. Pad rows of the groups become zeros. Uses row_map
// [T, K], counts [E], offs [E + 1], output [P, C], output_scale_inv [P], and with kMovesProbs probs
// [T, K] and output_probs [P]. With kTellsTokens row_tokens [P] gets the token of each real row, or
// ~token where the data is zeros. Prob is the type of probs: float or Bf16.
template <int32_t kColumns_, int32_t kTopK, int32_t kLocalExperts, bool kKeeps = false,
          bool kMovesProbs = true, bool kTellsTokens = false, typename Prob = float,
          typename Routed = RoutedBefore>
struct StorePermutedScaledRows {
  static_assert(kTopK > 0, "a token is routed to at least one expert");

  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kHasPads = false;  // its pad rows have no input: finish()
  using Rows = AllRows;
  // Is the stage behind another routing.
  template <typename Other>
  using With = StorePermutedScaledRows<kColumns_, kTopK, kLocalExperts, kKeeps, kMovesProbs,
                                       kTellsTokens, Prob, Other>;
  using To = Destinations<kColumns, kTopK, kMovesProbs, Prob, Routed>;
  using Batch = typename To::Batch;
  using Fetched = Batch;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    return To::fetch(params, at, 0);
  }
  MOEJIT_DEVICE static bool has_destination(const Fetched& first) {
    return kKeeps || To::exist(first);
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& first, const CodesSegment& codes,
                                  float scale_inv) {
    if constexpr (kKeeps) {
      store_bytes(ptx::global(static_cast<E4m3*>(params.kept_output)), at, codes.bytes);
      store_row_scale(params.kept_scale_inv, at, scale_inv);
    }
    store_batch<smaller(kTopK, kSegmentLanes)>(params, at, first, codes, scale_inv);
    for (int32_t k = kSegmentLanes; k < kTopK; k += kSegmentLanes) {
      store_batch<kSegmentLanes>(params, at, To::fetch(params, at, k), codes, scale_inv);
    }
  }
  MOEJIT_DEVICE static void finish(const RowChainParams& params) {
    constexpr int32_t kScales = 1;
    detail::PadRowWriter<kColumns, kLocalExperts, kMovesProbs, E4m3, kScales, Routed>{params}.run();
  }

 private:
  template <int32_t kCount>
  MOEJIT_DEVICE static void store_batch(const RowChainParams& params,
                                        const SegmentPosition<kColumns>& at, const Batch& batch,
                                        const CodesSegment& codes, float scale_inv) {
    const int32_t column = byte_column();
    const auto output = ptx::global(static_cast<E4m3*>(params.output));
    // Bit k: destination k gets zeros.
    uint32_t zeros = 0;
    if constexpr (kMovesProbs) zeros = To::ballot_of_segment(batch.prob == 0.0f);
#pragma unroll
    for (int32_t k = 0; k < kCount; ++k) {
      const int32_t row = shuffle_in_segment(batch.row, k);
      if (row < 0 || !at.is_inside(column)) continue;
      ptx::store_streaming(ptx::as<Bytes16>(output + at.offset_in_row(row, column)),
                           ((zeros >> k) & 1u) != 0 ? Bytes16{} : codes.bytes);
    }
    // Each lane of the first segment for its own destination.
    if (batch.row < 0 || at.index != 0) return;
    ptx::store(ptx::global(params.output_scale_inv) + batch.row, scale_inv);
    if constexpr (kTellsTokens) {
      const auto token = static_cast<int32_t>(at.row);
      ptx::store(ptx::global(params.row_tokens) + batch.row, batch.prob == 0.0f ? ~token : token);
    }
    if constexpr (kMovesProbs) {
      ptx::store(ptx::global(params.output_probs) + batch.row, batch.prob);
    }
  }
};

}  // namespace moejit::device
