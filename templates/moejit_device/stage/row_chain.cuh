// SPDX-License-Identifier: Apache-2.0
#pragma once

// The row chain: load -> transform -> quantize -> store over the segments of a matrix's rows, all
// in registers. Memory-bound, so what matters is bytes in flight: a warp holds 4 neighboring
// segments (contiguous memory) and loads kSegmentsInFlight of those sets before it uses the first.
//
// The segments of all rows form one list. The CTAs take steps of it in turn, so that those that run
// together work on neighbors. Their number changes who does what, never a result.
//
// Where each row is read once and written many times, reading by turns with writing costs more than
// the reads. With kRowsPerBurst L2 is asked for so many rows at once, before the CTAs that use them
// come: stage/burst.cuh.
//
// Emitted kernels look like this (one for each composition that the planner makes):
//
//   #include "moejit_device/stage/row_chain.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kColumns = 7168;
//   constexpr int32_t kTopK = 8;
//   constexpr int32_t kLocalExperts = 32;
//   constexpr uint32_t kEpsilonBits = 0x2edbe6ffu;  // 1e-10
//   constexpr int32_t kThreads = 128;
//   constexpr int32_t kSegmentsInFlight = 1;  // activation_quantize: 2
//   constexpr int32_t kRowsPerBurst = 432;    // only permute_pad where tokens have many rows
//
//   quantize:
//     using Kernel = RowChain<LoadRows<kColumns>, TransformIdentity, Quantize1x128<kEpsilonBits>,
//                             StoreRows<kColumns>, kThreads, kSegmentsInFlight>;
//   permute_pad:
//     using Kernel = RowChain<LoadQuantizedRows<kColumns>, TransformIdentity, QuantizeKeep,
//                             StorePermuted<kColumns, kTopK, kLocalExperts>, kThreads,
//                             kSegmentsInFlight, kRowsPerBurst>;
//   quantize_permute_pad:
//     using Kernel = RowChain<LoadRows<kColumns>, TransformIdentity, Quantize1x128<kEpsilonBits>,
//                             StorePermuted<kColumns, kTopK, kLocalExperts>, kThreads,
//                             kSegmentsInFlight>;
//   quantize_permute_pad that keeps the rows in token order too:
//     using Kernel = RowChain<LoadRows<kColumns>, TransformIdentity, Quantize1x128<kEpsilonBits>,
//                             StoreRowsAndPermuted<kColumns, kTopK, kLocalExperts>, kThreads,
//                             kSegmentsInFlight>;
//   activation_quantize (kColumns is the intermediate size):
//     using Kernel = RowChain<LoadGatedRows<kColumns>, TransformActivationProbability,
//                             Quantize1x128<kEpsilonBits>,
//                             StoreGroupedRows<kColumns, kLocalExperts>, kThreads,
//                             kSegmentsInFlight>;
//   activation_backward_quantize (kColumns is the intermediate size):
//     using Kernel = RowChain<LoadGatedGradientRows<kColumns>, TransformActivationBackward,
//                             Quantize1x128<kEpsilonBits>,
//                             StoreGroupedGatedRows<kColumns, kLocalExperts>, kThreads,
//                             kSegmentsInFlight>;
//   of activations without a gate:
//     LoadUpRows, LoadUpGradientRows and StoreGroupedUpRows instead of those of gated rows.
//   of either if no gradient of the probabilities is wanted, one more argument of the store
//   stage:
//     StoreGroupedGatedRows<kColumns, kLocalExperts, kColumns, kInterleaved, kTellsDprobs>
//   activation_dprobs, if nothing else is wanted:
//     using Kernel = RowChain<LoadGatedGradientRows<kColumns>, TransformActivationBackward,
//                             QuantizeNone, StoreGroupedDprobs<kColumns, kLocalExperts>, kThreads,
//                             kSegmentsInFlight>;
//   of bf16 layers permute_pad, activation and activation_backward:
//     using Kernel = RowChain<LoadUnchangedRows<kColumns>, TransformIdentity, QuantizeKeep,
//                             StorePermuted<kColumns, kTopK, kLocalExperts, kMovesProbs, Bf16>,
//                             kThreads, kSegmentsInFlight>;
//     and QuantizeNone instead of Quantize1x128.
//   permute_pad of rows of e2m1:
//     using Kernel = RowChain<LoadTwoLevelRows<kColumns>, TransformIdentity, QuantizeKeep,
//                             StorePermuted<kColumns, kTopK, kLocalExperts, kMovesProbs, E2m1x2>,
//                             kThreads, kSegmentsInFlight>;
//   unpermute:
//     using Kernel = RowChain<LoadCombinedRows<kColumns, kTopK>, TransformIdentity, QuantizeNone,
//                             StoreRows<kColumns>, kThreads, kSegmentsInFlight>;
//   unpermute of gradients, and of those of the probabilities:
//     using Kernel = RowChain<LoadCombinedRows<kColumns, kTopK>, TransformIdentity, QuantizeNone,
//                             StoreRowsAndProbs<kColumns, kTopK, kDprobsColumns>, kThreads,
//                             kSegmentsInFlight>;
//
//   Quantize1x128Pairs<kEpsilonBits> instead of Quantize1x128 if scale blocks share scales.
//   if an expert's rows share a scale, first their magnitudes, RoundSetsOfSegments with
//     StorePermutedAmax<kColumns, kTopK, kMovesProbs> or StoreGroupedAmax<kColumns, kLocalExperts>
//   and then their codes, QuantizeNone with StorePermutedCast or with StoreCast around the store
//   stage of the rows:
//     StoreCast<E5m2, kLocalExperts, StoreGroupedGatedRows<kColumns, kLocalExperts>>
//   if scales follow from the steps before, there is no pass for magnitudes: the store stage has
//     AmaxIsRecorded<kLocalExperts, kAmaxStride, kAmaxFirst> as its last argument.
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_..., RowChainParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/stage/burst.cuh"
#include "moejit_device/stage/load.cuh"
#include "moejit_device/stage/load_combined.cuh"
#include "moejit_device/stage/quantize.cuh"
#include "moejit_device/stage/store_amax.cuh"
#include "moejit_device/stage/store_cast.cuh"
#include "moejit_device/stage/store_dprobs.cuh"
#include "moejit_device/stage/store_gated_rows.cuh"
#include "moejit_device/stage/store_permuted.cuh"
#include "moejit_device/stage/store_rows.cuh"
#include "moejit_device/stage/store_rows_and_probs.cuh"
#include "moejit_device/stage/store_up_rows.cuh"
#include "moejit_device/stage/transform.cuh"

namespace moejit::device {

// This CTA's steps through the list of segments. In a step each warp has kSegments sets of 4
// segments; set s of it holds the segments 4s to 4s + 3, one for each eight lanes. Rows are filled
// up with absent segments to a multiple of kTogether, so that no group of so many is parted.
template <int32_t kColumns, int32_t kThreads, int32_t kSegments, int32_t kTogether>
class SegmentWalk {
  static_assert(kWarpSegments % kTogether == 0, "a warp holds whole groups of segments");

 public:
  static constexpr int32_t kExisting = SegmentPosition<kColumns>::kPerRow;
  static constexpr uint32_t kPerRow = align_up(kExisting, kTogether);
  static constexpr uint32_t kStepSegments = kThreads / kSegmentLanes * kSegments;

  MOEJIT_DEVICE explicit SegmentWalk(int64_t rows) : rows_(rows) { move_to(ptx::cta_index()); }

  MOEJIT_DEVICE bool has_work() const { return first_row_ < rows_; }

  MOEJIT_DEVICE int64_t step() const { return step_; }
  MOEJIT_DEVICE void next() { move_to(step_ + ptx::cta_count()); }

  // Returns where this lane's segment of set `set` lies. `kinds` tells real rows from pad rows.
  template <int32_t kSet, typename Rows>
  MOEJIT_DEVICE SegmentPosition<kColumns> position(Rows& kinds) const {
    const auto of_warp = static_cast<uint32_t>(ptx::warp_index() * kSegments + kSet);
    const uint32_t segment = first_ + of_warp * kWarpSegments + segment_of_lane();
    const uint32_t rows = segment / kPerRow;
    SegmentPosition<kColumns> at{first_row_ + rows, static_cast<int32_t>(segment - rows * kPerRow),
                                 RowKind::kAbsent};
    const bool is_filler = kPerRow > kExisting && at.index >= kExisting;
    if (at.row < rows_ && !is_filler) at.kind = kinds.kind_of(at.row);
    return at;
  }

 private:
  // One division of 64 bits by a constant, for all threads alike.
  MOEJIT_DEVICE void move_to(int64_t step) {
    step_ = step;
    const uint64_t segment = static_cast<uint64_t>(step) * kStepSegments;
    first_row_ = static_cast<int64_t>(segment / kPerRow);
    first_ = static_cast<uint32_t>(segment - static_cast<uint64_t>(first_row_) * kPerRow);
  }

  int64_t rows_;
  int64_t step_;
  int64_t first_row_;  // of the step's first segment
  uint32_t first_;     // which one of its row that is
};

// Returns the shared memory that a store stage keeps between begin() and finish(), if it has any.
template <typename Store>
MOEJIT_DEVICE constexpr int32_t shared_bytes_of() {
  if constexpr (requires { Store::kSharedBytes; }) return Store::kSharedBytes;
  return 0;
}

template <typename Load, typename Transform, typename Quantize, typename Store, int32_t kThreads_,
          int32_t kSegments = Load::kSegmentsInFlight, int32_t kRowsPerBurst = 0>
struct RowChain {
  static_assert(LoadStage<Load>,
                "the first stage is a load stage: kColumns, kSegmentsInFlight, Fetched, "
                "fetch(params, position) and unpack(fetched)");
  static_assert(TransformStageAfter<Transform, Load>,
                "the transform stage has apply() for what the load stage unpacks");
  static_assert(QuantizeStageAfter<Quantize, Load, Transform>,
                "the quantize stage has kSegmentsPerScale, and apply() for what the transform "
                "stage gives");
  static_assert(StoreStageAfter<Store, Load, Transform, Quantize>,
                "the store stage has Rows, Fetched, fetch(), finish() and a store() for what the "
                "quantize stage gives");
  static_assert(Load::kColumns == Store::kColumns, "load and store agree on the columns of a row");
  static_assert(kThreads_ % 32 == 0 && kThreads_ > 0, "whole warps");
  static_assert(kSegments > 0, "a lane works on at least one segment at a time");

  using Stored = decltype(Quantize::apply(
      Transform::apply(Load::unpack(detail::made<typename Load::Fetched>()))));

  static constexpr int32_t kColumns = Store::kColumns;
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kSharedBytes = shared_bytes_of<Store>();
  // For the launch bounds: leaves a thread the registers that its loads in flight need.
  static constexpr int32_t kCtasPerSm = smaller(Load::kThreadsPerSm / kThreads, int32_t{32});

  // Is the chain behind another routing, if its store stage permutes.
  template <typename Routed, typename Permuted = Store>
  using With = RowChain<Load, Transform, Quantize, typename Permuted::template With<Routed>,
                        kThreads_, kSegments, kRowsPerBurst>;

  MOEJIT_DEVICE static void run(const RowChainParams& params) {
    if (has_other_tokens(params.call)) return;
    typename Store::Rows rows = Store::Rows::of(params);
    if constexpr (requires { Store::begin(); }) Store::begin();
    for (Walk walk(rows.count); walk.has_work(); walk.next()) {
      if constexpr (kRowsPerBurst > 0) Bursts<Load, Walk, kRowsPerBurst>::ask(params, walk.step());
      Step step;
      step.template fetch<0>(params, walk, rows);
#pragma unroll
      for (int32_t s = 0; s < kSegments; ++s) step.finish(params, s);
    }
    Store::finish(params);
  }

  // Calls route() while the first rows are on their way; before it no destination is known. Every
  // thread calls.
  template <typename RouteAll>
  MOEJIT_DEVICE static void run_around(const RowChainParams& params, RouteAll route) {
    typename Store::Rows rows = Store::Rows::of(params);
    Walk walk(rows.count);
    Step step;
    if (walk.has_work()) step.template fetch_ahead<0>(params, walk, rows);
    route();
    while (walk.has_work()) {
#pragma unroll
      for (int32_t s = 0; s < kSegments; ++s) Store::To::find(params, step.at[s], step.where[s]);
#pragma unroll
      for (int32_t s = 0; s < kSegments; ++s) step.finish(params, s);
      walk.next();
      if (walk.has_work()) step.template fetch_ahead<0>(params, walk, rows);
    }
    Store::finish(params);
  }

 private:
  using Walk = SegmentWalk<kColumns, kThreads, kSegments, Quantize::kSegmentsPerScale>;

  struct Step {
    SegmentPosition<kColumns> at[kSegments];
    typename Load::Fetched fetched[kSegments];
    typename Store::Fetched where[kSegments];

    template <int32_t kSet, typename Walk, typename Rows>
    MOEJIT_DEVICE void fetch(const RowChainParams& params, const Walk& walk, Rows& rows) {
      if constexpr (kSet < kSegments) {
        at[kSet] = walk.template position<kSet>(rows);
        where[kSet] = Store::fetch(params, at[kSet]);
        SegmentPosition<kColumns> from = at[kSet];
        if constexpr (requires { Store::has_destination(where[kSet]); }) {
          if (!Store::has_destination(where[kSet])) from.kind = RowKind::kAbsent;
        }
        fetched[kSet] = Load::fetch(params, from);
        fetch<kSet + 1>(params, walk, rows);
      }
    }
    template <int32_t kSet, typename Rows>
    MOEJIT_DEVICE void fetch_ahead(const RowChainParams& params, const Walk& walk, Rows& rows) {
      if constexpr (kSet < kSegments) {
        at[kSet] = walk.template position<kSet>(rows);
        fetched[kSet] = Load::fetch(params, at[kSet]);
        where[kSet] = Store::To::fetch_ahead(params, at[kSet]);
        fetch_ahead<kSet + 1>(params, walk, rows);
      }
    }
    MOEJIT_DEVICE void finish(const RowChainParams& params, int32_t s) {
      if constexpr (Store::kHasPads) {
        // Where a whole warp has pad rows there is nothing to compute.
        if (ptx::ballot(at[s].is_real()) == 0) {
          return Store::store(params, at[s], where[s], Stored{});
        }
      }
      Store::store(params, at[s], where[s],
                   Quantize::apply(Transform::apply(Load::unpack(fetched[s]))));
    }
  };
};

}  // namespace moejit::device
