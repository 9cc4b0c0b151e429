// SPDX-License-Identifier: Apache-2.0
#pragma once

// Store stages that cast to FP8 with the scale of a row's expert, which is known beforehand:
// expert_scales [E]. Values were rounded to bf16, so that their products with the scale are rounded
// a second time, to fp32, and a third time by the cast. With AmaxIsRecorded they also raise amax to
// the largest magnitudes of the values, before these are scaled.

#include "moejit_device/cast/cast_input.cuh"
#include "moejit_device/core/gated_gradient.cuh"
#include "moejit_device/core/up_gradient.cuh"
#include "moejit_device/map/splits.cuh"
#include "moejit_device/stage/record_amax.cuh"
#include "moejit_device/stage/store_permuted.cuh"

namespace moejit::device {

// A row's expert, and its scale.
struct ExpertOfRow {
  int32_t expert = 0;
  float scale = 0.0f;  // 0 in rows that are not real
};

template <int32_t kLocalExperts>
MOEJIT_DEVICE ExpertOfRow expert_of_row(const RowChainParams& params, int64_t row) {
  const Splits<kLocalExperts> splits{ptx::global(params.counts), ptx::global(params.offs)};
  const int32_t expert = splits.find(row);
  return {.expert = expert, .scale = ptx::load(ptx::global(params.expert_scales) + expert)};
}

// The store stage `Store` of permuted rows, for their codes.
template <typename Format, int32_t kLocalExperts, typename Store, typename Amax = AmaxIsDropped>
struct StoreCast {
  static constexpr int32_t kColumns = Store::kColumns;
  static constexpr int32_t kSharedBytes = Amax::kSharedBytes;
  static constexpr bool kHasPads = Store::kHasPads;
  using Rows = typename Store::Rows;
  struct Fetched {
    typename Store::Fetched where;
    ExpertOfRow of;
  };

  MOEJIT_DEVICE static void begin() { Amax::begin(); }

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    return {.where = Store::fetch(params, at),
            .of = at.is_real() ? expert_of_row<kLocalExperts>(params, at.row) : ExpertOfRow{}};
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& fetched, const Bf16Segment& segment) {
    record(at, fetched, segment);
    Store::store(params, at, fetched.where, codes(segment, fetched.of.scale));
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& fetched, const Bf16GatedGradient& gradient) {
    record(at, fetched, gradient);
    const CodesGatedGradient cast{.gate = codes(gradient.gate, fetched.of.scale).bytes,
                                  .up = codes(gradient.up, fetched.of.scale).bytes,
                                  .dprob = gradient.dprob};
    Store::store(params, at, fetched.where, cast);
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& fetched,
                                  const StoredUpGradient<Bf16Segment>& gradient) {
    record(at, fetched, gradient);
    const StoredUpGradient<CodesSegment> cast{.up = codes(gradient.up, fetched.of.scale),
                                              .dprob = gradient.dprob};
    Store::store(params, at, fetched.where, cast);
  }
  MOEJIT_DEVICE static void finish(const RowChainParams& params) {
    Store::finish(params);
    Amax::finish(params);
  }

 private:
  template <typename Segment>
  MOEJIT_DEVICE static void record(const SegmentPosition<kColumns>& at, const Fetched& fetched,
                                   const Segment& segment) {
    const float amax = Amax::of_segment(segment);
    if (at.is_real() && segment_lane() == 0) Amax::raise(fetched.of.expert, amax);
  }
  MOEJIT_DEVICE static CodesSegment codes(const Bf16Segment& segment, float scale) {
    return {.bytes = Bf16Input::cast<Format>(segment, scale)};
  }
};

// A token's row to each of its destinations, cast with the scale of the destination's expert, and
// with kMovesProbs its probability; where that is 0, the data is zeros. Pad rows of the groups
// become zeros. Uses row_map [T, K], counts [E], offs [E + 1], expert_scales [E], output [P, C],
// and with kMovesProbs probs [T, K] and output_probs [P]. With kTellsTokens row_tokens [P] gets the
// token of each real row, or ~token where the data is zeros.
template <int32_t kColumns_, int32_t kTopK, int32_t kLocalExperts, bool kMovesProbs,
          typename Format, typename Prob = float, typename Amax = AmaxIsDropped,
          bool kTellsTokens = false>
struct StorePermutedCast {
  static_assert(kTopK > 0, "a token is routed to at least one expert");

  static constexpr int32_t kColumns = kColumns_;
  static constexpr int32_t kSharedBytes = Amax::kSharedBytes;
  static constexpr bool kHasPads = false;  // its pad rows have no input: finish()
  using Rows = AllRows;
  using To = Destinations<kColumns, kTopK, kMovesProbs, Prob>;
  // A lane's destination, and the expert there.
  struct Fetched {
    typename To::Batch to;
    ExpertOfRow of;
  };

  MOEJIT_DEVICE static void begin() { Amax::begin(); }

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    return fetch_batch(params, at, 0);
  }
  MOEJIT_DEVICE static bool has_destination(const Fetched& first) { return To::exist(first.to); }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& first, const Bf16Segment& segment) {
    const float amax = Amax::of_segment(segment);
    store_batch<smaller(kTopK, kSegmentLanes)>(params, at, first, segment, amax);
    for (int32_t k = kSegmentLanes; k < kTopK; k += kSegmentLanes) {
      store_batch<kSegmentLanes>(params, at, fetch_batch(params, at, k), segment, amax);
    }
  }
  MOEJIT_DEVICE static void finish(const RowChainParams& params) {
    constexpr bool kHasScales = false;
    detail::PadRowWriter<kColumns, kLocalExperts, kMovesProbs, Format, kHasScales>{params}.run();
    Amax::finish(params);
  }

 private:
  MOEJIT_DEVICE static Fetched fetch_batch(const RowChainParams& params,
                                           const SegmentPosition<kColumns>& at, int32_t first_k) {
    Fetched fetched{.to = To::fetch(params, at, first_k), .of = {}};
    if (fetched.to.row >= 0) fetched.of = expert_of_row<kLocalExperts>(params, fetched.to.row);
    return fetched;
  }

  template <int32_t kCount>
  MOEJIT_DEVICE static void store_batch(const RowChainParams& params,
                                        const SegmentPosition<kColumns>& at, const Fetched& batch,
                                        const Bf16Segment& segment, float amax) {
    // Each lane for its own destination.
    if (batch.to.row >= 0 && batch.to.prob != 0.0f) Amax::raise(batch.of.expert, amax);
    const int32_t column = byte_column();
    const auto output = ptx::global(static_cast<E4m3*>(params.output));
#pragma unroll
    for (int32_t k = 0; k < kCount; ++k) {
      const int32_t row = shuffle_in_segment(batch.to.row, k);
      const bool is_zero = shuffle_in_segment(batch.to.prob, k) == 0.0f;
      const float scale = shuffle_in_segment(batch.of.scale, k);
      // The lanes of a warp exchange bytes, so they cast together, or none of them does.
      if (ptx::ballot(row >= 0) == 0) continue;
      const Bytes16 bytes = Bf16Input::cast<Format>(segment, scale);
      if (row < 0 || !at.is_inside(column)) continue;
      ptx::store_streaming(ptx::as<Bytes16>(output + at.offset_in_row(row, column)),
                           is_zero ? Bytes16{} : bytes);
    }
    // Each lane for its own destination.
    if (batch.to.row < 0 || at.index != 0) return;
    if constexpr (kMovesProbs) {
      ptx::store(ptx::global(params.output_probs) + batch.to.row, batch.to.prob);
    }
    if constexpr (kTellsTokens) {
      const auto token = static_cast<int32_t>(at.row);
      ptx::store(ptx::global(params.row_tokens) + batch.to.row,
                 batch.to.prob == 0.0f ? ~token : token);
    }
  }
};

}  // namespace moejit::device
