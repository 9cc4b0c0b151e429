// SPDX-License-Identifier: Apache-2.0
#pragma once

// Store stages that write a token's row to every destination that row_map gives it.

#include "moejit_device/core/two_level_segment.cuh"
#include "moejit_device/stage/destinations.cuh"
#include "moejit_device/stage/store_rows.cuh"

namespace moejit::device {

namespace detail {

// A row of Elements: how many columns an element holds, what is stored of a row at once, and the
// words of a row's scales.
template <typename Element, int32_t kColumns>
struct RowOf {
  static constexpr int32_t kElementColumns = 1;
  using Run = Bytes16;
  static constexpr int32_t kScaleWords =
      sizeof(Element) == sizeof(E4m3) ? ceil_div(kColumns, kSegmentColumns) : 0;
  MOEJIT_DEVICE static void store_run(ptx::GlobalPtr<Run> place) {
    ptx::store_streaming(place, Run{});
  }
};
// Rows of codes start at multiples of 8 bytes, so they are stored 8 bytes at a time.
template <int32_t kColumns>
struct RowOf<E2m1x2, kColumns> {
  static constexpr int32_t kElementColumns = 2;
  using Run = Bytes8;
  static constexpr int32_t kScaleWords = 2 * ceil_div(kColumns, kSegmentColumns);
  MOEJIT_DEVICE static void store_run(ptx::GlobalPtr<Run> place) { ptx::store(place, Run{}); }
};

// Writes zeros to the pad rows of all groups: data, kScales words of a row's scales and, if they
// move, probabilities. The rows are dealt out to the warps of the grid one by one; the lanes of a
// warp look up 32 of its rows at a time.
template <int32_t kColumns, int32_t kLocalExperts, bool kMovesProbs, typename Element,
          int32_t kScales = RowOf<Element, kColumns>::kScaleWords, typename Routed = RoutedBefore>
struct PadRowWriter {
  const RowChainParams& params;

  MOEJIT_DEVICE void run() const { run_part(ptx::cta_index(), ptx::cta_count()); }
  // Writes one of `parts` parts of them.
  MOEJIT_DEVICE void run_part(int32_t part, int32_t parts) const {
    if constexpr (!Routed::kMayPad) return;
    const auto splits = Routed::template groups<kLocalExperts>(params);
    const int32_t rows = Routed::template rows<kLocalExperts>(params);
    const int64_t warps = int64_t{parts} * (ptx::thread_count() / 32);
    const int64_t warp = int64_t{ptx::warp_index()} * parts + part;
    for (int64_t first = warp; first < rows; first += 32 * warps) {
      const int64_t own_row = first + ptx::lane_index() * warps;
      uint32_t pads = ptx::ballot(own_row < rows && splits.is_pad(own_row));
      for (int64_t row = first; pads != 0; row += warps, pads >>= 1) {
        if ((pads & 1u) != 0) write_zeros(row);
      }
    }
  }

 private:
  MOEJIT_DEVICE void write_zeros(int64_t row) const {
    using Row = RowOf<Element, kColumns>;
    using Run = typename Row::Run;
    constexpr int32_t kElements = kColumns / Row::kElementColumns;
    constexpr int32_t kRun = sizeof(Run) / sizeof(Element);
    const auto data = ptx::global(static_cast<Element*>(params.output)) + row * kElements;
    const int32_t lane = ptx::lane_index();
    for (int32_t i = kRun * lane; i < kElements; i += kRun * 32) {
      Row::store_run(ptx::as<Run>(data + i));
    }
    if constexpr (kScales > 0) {
      const auto scales = ptx::global(params.output_scale_inv) + row * kScales;
      for (int32_t i = lane; i < kScales; i += 32) ptx::store(scales + i, 0.0f);
    }
    if constexpr (kMovesProbs) {
      if (lane == 0) ptx::store(ptx::global(params.output_probs) + row, 0.0f);
    }
  }
};

}  // namespace detail

// A token's row of Elements, with its scales if these are e4m3 or e2m1, to each of its destinations
// and, with kMovesProbs, its probability beside them; where that is 0, the data is zeros (scales
// are kept). Pad rows of the groups become zeros. Uses row_map [T, K], counts [E], offs [E + 1],
// output [P, C], of e2m1 [P, C / 2]; for e4m3 output_scale_inv [P, ceil(C / 128)], for e2m1 bytes
// [P, 8 ceil(C / 128)]; with kMovesProbs probs [T, K] and output_probs [P]. With kTellsTokens
// row_tokens [P] gets the token of each real row, or ~token where the data is zeros. Prob is the
// type of probs: float or Bf16. Routed tells the destinations and the groups.
template <int32_t kColumns_, int32_t kTopK, int32_t kLocalExperts, bool kMovesProbs_ = true,
          typename Element = E4m3, bool kTellsTokens = false, typename Prob = float,
          typename Routed = RoutedBefore>
struct StorePermuted {
  static_assert(kTopK > 0, "a token is routed to at least one expert");

  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kMovesProbs = kMovesProbs_, kKeepsRows = false;
  static constexpr bool kHasPads = false;  // its pad rows have no input: finish()
  using Rows = AllRows;

  // Is the stage behind another routing.
  template <typename Other>
  using With = StorePermuted<kColumns_, kTopK, kLocalExperts, kMovesProbs_, Element, kTellsTokens,
                             Prob, Other>;

  // The first batch is loaded before the data.
  using To = Destinations<kColumns, kTopK, kMovesProbs, Prob, Routed>;
  using Batch = typename To::Batch;
  using Fetched = Batch;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    return To::fetch(params, at, 0);
  }
  MOEJIT_DEVICE static bool has_destination(const Fetched& first) { return To::exist(first); }
  // Returns whether a segment goes to any permuted row.
  MOEJIT_DEVICE static bool is_permuted(const Fetched& first) { return To::exist(first); }
  template <typename Segment>
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& first, const Segment& segment) {
    store_batch<smaller(kTopK, kSegmentLanes)>(params, at, first, segment);
    for (int32_t k = kSegmentLanes; k < kTopK; k += kSegmentLanes) {
      store_batch<kSegmentLanes>(params, at, To::fetch(params, at, k), segment);
    }
  }
  MOEJIT_DEVICE static void finish(const RowChainParams& params) { Pads{params}.run(); }
  // Does one of `parts` parts of that.
  MOEJIT_DEVICE static void finish_part(const RowChainParams& params, int32_t part, int32_t parts) {
    Pads{params}.run_part(part, parts);
  }
  // Stores what a row has beside its data and scales, for a destination of it.
  MOEJIT_DEVICE static void store_beside(const RowChainParams& params,
                                         const SegmentPosition<kColumns>& at,
                                         const Batch& destination) {
    if constexpr (kTellsTokens) {
      const auto token = static_cast<int32_t>(at.row);
      ptx::store(ptx::global(params.row_tokens) + destination.row,
                 destination.prob == 0.0f ? ~token : token);
    }
    if constexpr (kMovesProbs) {
      ptx::store(ptx::global(params.output_probs) + destination.row, destination.prob);
    }
  }

 private:
  using Pads = detail::PadRowWriter<kColumns, kLocalExperts, kMovesProbs, Element,
                                    detail::RowOf<Element, kColumns>::kScaleWords, Routed>;

  template <int32_t kCount, typename Segment>
  MOEJIT_DEVICE static void store_batch(const RowChainParams& params,
                                        const SegmentPosition<kColumns>& at, const Batch& batch,
                                        const Segment& segment) {
    // Bit k: destination k of this segment gets zeros.
    uint32_t zeros = 0;
    if constexpr (kMovesProbs) {
      zeros = To::ballot_of_segment(batch.prob == 0.0f);
    }
#pragma unroll
    for (int32_t k = 0; k < kCount; ++k) {
      const int32_t row = shuffle_in_segment(batch.row, k);
      if (row >= 0) store_data(params, at, row, ((zeros >> k) & 1u) != 0, segment);
    }
    // Each lane for its own destination.
    if (batch.row < 0) return;
    store_scale(params, at, batch.row, segment);
    if (at.index == 0) store_beside(params, at, batch);
  }

  MOEJIT_DEVICE static void store_data(const RowChainParams& params,
                                       const SegmentPosition<kColumns>& at, int32_t row,
                                       bool is_zero, const QuantizedSegment& segment) {
    const int32_t column = byte_column();
    if (!at.is_inside(column)) return;
    const auto output = ptx::global(static_cast<E4m3*>(params.output));
    ptx::store_streaming(ptx::as<Bytes16>(output + at.offset_in_row(row, column)),
                         is_zero ? Bytes16{} : segment.bytes);
  }
  MOEJIT_DEVICE static void store_data(const RowChainParams& params,
                                       const SegmentPosition<kColumns>& at, int32_t row,
                                       bool is_zero, const Bf16Segment& segment) {
    const auto output = ptx::global(static_cast<Bf16*>(params.output));
#pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
      const int32_t column = run_column(run);
      if (!at.is_inside(column)) continue;
      ptx::store_streaming(ptx::as<Bytes16>(output + at.offset_in_row(row, column)),
                           is_zero ? Bytes16{} : segment.run[run]);
    }
  }
  MOEJIT_DEVICE static void store_data(const RowChainParams& params,
                                       const SegmentPosition<kColumns>& at, int32_t row,
                                       bool is_zero, const TwoLevelSegment& segment) {
    const int32_t column = code_column();
    if (!at.is_inside(column)) return;
    const auto output = ptx::global(static_cast<E2m1x2*>(params.output));
    ptx::store(ptx::as<Bytes8>(output + at.offset_in_row(row, column) / 2),
               is_zero ? Bytes8{} : segment.codes);
  }

  MOEJIT_DEVICE static void store_scale(const RowChainParams& params,
                                        const SegmentPosition<kColumns>& at, int32_t row,
                                        const QuantizedSegment& segment) {
    ptx::store(ptx::global(params.output_scale_inv) + at.scale_offset_in_row(row),
               segment.scale_inv);
  }
  MOEJIT_DEVICE static void store_scale(const RowChainParams& params,
                                        const SegmentPosition<kColumns>& at, int32_t row,
                                        const TwoLevelSegment& segment) {
    const auto scales = ptx::as<Bytes8>(ptx::global(params.output_scale_inv));
    ptx::store(scales + at.scale_offset_in_row(row), segment.scales);
  }
  MOEJIT_DEVICE static void store_scale(const RowChainParams&, const SegmentPosition<kColumns>&,
                                        int32_t, const Bf16Segment&) {}
};

// Both: row t to row t of kept_output [T, C] and, for e4m3, of kept_scale_inv [T, ceil(C / 128)],
// and to its destinations.
template <int32_t kColumns_, int32_t kTopK, int32_t kLocalExperts, bool kMovesProbs_ = true,
          typename Element = E4m3, bool kTellsTokens = false, typename Prob = float,
          typename Routed = RoutedBefore>
struct StoreRowsAndPermuted {
  using Permuted = StorePermuted<kColumns_, kTopK, kLocalExperts, kMovesProbs_, Element,
                                 kTellsTokens, Prob, Routed>;
  using To = typename Permuted::To;
  template <typename Other>
  using With = StoreRowsAndPermuted<kColumns_, kTopK, kLocalExperts, kMovesProbs_, Element,
                                    kTellsTokens, Prob, Other>;

  static constexpr int32_t kColumns = kColumns_;
  static constexpr bool kMovesProbs = kMovesProbs_, kKeepsRows = true;
  static constexpr bool kHasPads = false;  // its pad rows have no input: finish()
  using Rows = AllRows;
  using Fetched = typename Permuted::Fetched;

  MOEJIT_DEVICE static Fetched fetch(const RowChainParams& params,
                                     const SegmentPosition<kColumns>& at) {
    return Permuted::fetch(params, at);
  }
  MOEJIT_DEVICE static bool is_permuted(const Fetched& first) {
    return Permuted::is_permuted(first);
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& where, const QuantizedSegment& segment) {
    store_quantized(params.kept_output, params.kept_scale_inv, at, segment);
    Permuted::store(params, at, where, segment);
  }
  MOEJIT_DEVICE static void store(const RowChainParams& params, const SegmentPosition<kColumns>& at,
                                  const Fetched& where, const Bf16Segment& segment) {
    store_runs(ptx::global(static_cast<Bf16*>(params.kept_output)), at, segment);
    Permuted::store(params, at, where, segment);
  }
  MOEJIT_DEVICE static void finish(const RowChainParams& params) { Permuted::finish(params); }
  MOEJIT_DEVICE static void finish_part(const RowChainParams& params, int32_t part, int32_t parts) {
    Permuted::finish_part(params, part, parts);
  }
  MOEJIT_DEVICE static void store_beside(const RowChainParams& params,
                                         const SegmentPosition<kColumns>& at,
                                         const typename To::Batch& destination) {
    Permuted::store_beside(params, at, destination);
  }
};

}  // namespace moejit::device
