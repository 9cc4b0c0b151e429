// SPDX-License-Identifier: Apache-2.0
#pragma once

// The whole-row chain: load -> transform -> round to bf16 -> quantize -> store, where a row has one
// scale. A team of warps holds a row in registers: all its loads are in flight at once, the warps
// agree on the largest magnitude, and each casts what it holds. So a row is read once.
//
// A lane holds kSegments segments of a row, and the team has as few warps as hold all. A CTA has as
// many teams as its threads make, each with a row and a barrier of its own. The teams of all CTAs
// take rows in turn.
//
// Load and transform stages are the same as in the row chain (stage/row_chain.cuh). Emitted kernels
// look like this:
//
//   #include "moejit_device/stage/whole_row_chain.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kColumns = 7168;
//   constexpr uint32_t kEpsilonBits = 0x2b8cbcccu;  // 1e-12
//   constexpr int32_t kThreads = 224;
//   constexpr int32_t kSegmentsInFlight = 2;
//
//   quantize:
//     using Kernel = WholeRowChain<LoadRows<kColumns>, TransformIdentity, kEpsilonBits,
//                                  StoreScaledRows<StoreRows<kColumns>>, kThreads,
//                                  kSegmentsInFlight>;
//   quantize_permute_pad:
//     StorePermutedScaledRows<kColumns, kTopK, kLocalExperts>
//   quantize of weights, whose rows may alternate:
//     LoadMatrixRows<kColumns, kSections, kSectionRows>
//   activation_quantize:
//     LoadGatedRows<kColumns>, TransformActivationProbability<Activation>,
//     StoreScaledRows<StoreGroupedRows<kColumns, kLocalExperts>>
//   activation_backward_quantize, of which gate and up have one scale:
//     LoadGatedGradientRows<kColumns>, TransformActivationBackward<Activation>,
//     StoreScaledRows<StoreGroupedGatedRows<kColumns, kLocalExperts>>
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_..., RowChainParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/core/row_scaled.cuh"
#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/stage/load.cuh"
#include "moejit_device/stage/load_matrix_rows.cuh"
#include "moejit_device/stage/quantize.cuh"
#include "moejit_device/stage/store_gated_rows.cuh"
#include "moejit_device/stage/store_scaled_rows.cuh"
#include "moejit_device/stage/store_up_rows.cuh"
#include "moejit_device/stage/transform.cuh"

namespace moejit::device {

// The kWarps warps that hold a row together, of a CTA with kThreads threads.
template <int32_t kWarps, int32_t kThreads>
class RowTeam {
 public:
  static_assert(kThreads % (32 * kWarps) == 0, "a CTA holds whole rows");
  static constexpr int32_t kTeams = kThreads / (32 * kWarps);  // of a CTA
  static_assert(kWarps == 1 || kTeams <= 15, "each team has a barrier of its own");
  // Two slots for each warp: a warp may be a row ahead of another, but never two.
  static constexpr int32_t kSharedBytes = kWarps > 1 ? 2 * 4 * (kThreads / 32) : 0;

  MOEJIT_DEVICE static int32_t index() { return kTeams == 1 ? 0 : ptx::warp_index() / kWarps; }
  MOEJIT_DEVICE static int32_t warp() { return ptx::warp_index() - index() * kWarps; }

  // Returns the largest value of all threads of the team; NaN counts as nothing. All of them call
  // it, for one row after the other.
  MOEJIT_DEVICE float max(float value) {
#pragma unroll
    for (int32_t mask = 16; mask > 0; mask /= 2) {
      value = ptx::max_number(value, ptx::shuffle_xor(value, mask));
    }
    if constexpr (kWarps == 1) return value;
    const auto slots = ptx::shared<float>(0) + (turn_ * (kThreads / 32) + index() * kWarps);
    turn_ ^= 1;
    if (ptx::lane_index() == 0) ptx::store(slots + warp(), value);
    // Orders the writes of this row before its reads, and the reads of the row before this one
    // before the writes of the next one, which go to the same slots.
    ptx::sync_named(1 + index(), 32 * kWarps);
#pragma unroll
    for (int32_t w = 0; w < kWarps; ++w) value = ptx::max_number(value, ptx::load(slots + w));
    return value;
  }

 private:
  int32_t turn_ = 0;
};

template <typename Load, typename Transform, uint32_t kEpsilonBits, typename Store,
          int32_t kThreads_, int32_t kSegments>
struct WholeRowChain {
  static_assert(LoadStage<Load>, "the first stage is a load stage");
  static_assert(TransformStageAfter<Transform, Load>,
                "the transform stage has apply() for what the load stage unpacks");
  static_assert(Load::kColumns == Store::kColumns, "load and store agree on the columns of a row");
  static_assert(kSegments > 0, "a lane holds at least one segment");

  static constexpr int32_t kColumns = Store::kColumns;
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kTeamWarps =
      ceil_div(SegmentPosition<kColumns>::kPerRow, kSegments* kWarpSegments);
  using Team = RowTeam<kTeamWarps, kThreads>;
  static constexpr int32_t kSharedBytes = Team::kSharedBytes;
  // For the launch bounds: leaves a thread the registers that its loads in flight need.
  static constexpr int32_t kCtasPerSm =
      larger(smaller(Load::kThreadsPerSm / kThreads, int32_t{32}), int32_t{1});

  // Is the chain behind another routing, if its store stage permutes.
  template <typename Routed, typename Permuted = Store>
  using With = WholeRowChain<Load, Transform, kEpsilonBits,
                             typename Permuted::template With<Routed>, kThreads_, kSegments>;

  MOEJIT_DEVICE static void run(const RowChainParams& params) {
    if (has_other_tokens(params.call)) return;
    if constexpr (requires { Load::is_skipped(params); }) {
      if (Load::is_skipped(params)) return;
    }
    typename Store::Rows rows = Store::Rows::of(params);
    Team team;
    const int64_t step = int64_t{ptx::cta_count()} * Team::kTeams;
    for (int64_t row = int64_t{ptx::cta_index()} * Team::kTeams + Team::index(); row < rows.count;
         row += step) {
      Row(params, row, rows.kind_of(row)).finish(params, team);
    }
    Store::finish(params);
  }

  // Calls route() while the first rows are on their way; before it no destination is known. Every
  // thread calls.
  template <typename RouteAll>
  MOEJIT_DEVICE static void run_around(const RowChainParams& params, RouteAll route) {
    typename Store::Rows rows = Store::Rows::of(params);
    Team team;
    const int64_t step = int64_t{ptx::cta_count()} * Team::kTeams;
    int64_t next = int64_t{ptx::cta_index()} * Team::kTeams + Team::index();
    Row row;
    if (next < rows.count) row.fetch_ahead(params, next, rows.kind_of(next));
    route();
    while (next < rows.count) {
      row.find(params);
      row.finish(params, team);
      next += step;
      if (next < rows.count) row.fetch_ahead(params, next, rows.kind_of(next));
    }
    Store::finish(params);
  }

 private:
  using Rounded = decltype(QuantizeNone::apply(
      Transform::apply(Load::unpack(detail::made<typename Load::Fetched>()))));
  using Codes = decltype(codes_of(detail::made<Rounded>(), 0.0f));

  // A lane's segments of a row.
  struct Row {
    RowKind kind;  // of the row: the same in all threads of the team
    SegmentPosition<kColumns> at[kSegments];
    typename Load::Fetched fetched[kSegments];
    typename Store::Fetched where[kSegments];

    Row() = default;
    MOEJIT_DEVICE Row(const RowChainParams& params, int64_t row, RowKind kind_of_row)
        : kind(kind_of_row) {
#pragma unroll
      for (int32_t s = 0; s < kSegments; ++s) {
        at[s] = position(row, s);
        where[s] = Store::fetch(params, at[s]);
        SegmentPosition<kColumns> from = at[s];
        if constexpr (requires { Store::has_destination(where[s]); }) {
          if (!Store::has_destination(where[s])) from.kind = RowKind::kAbsent;
        }
        fetched[s] = Load::fetch(params, from);
      }
    }

    MOEJIT_DEVICE void fetch_ahead(const RowChainParams& params, int64_t row, RowKind kind_of_row) {
      kind = kind_of_row;
#pragma unroll
      for (int32_t s = 0; s < kSegments; ++s) {
        at[s] = position(row, s);
        fetched[s] = Load::fetch(params, at[s]);
        where[s] = Store::To::fetch_ahead(params, at[s]);
      }
    }
    MOEJIT_DEVICE void find(const RowChainParams& params) {
#pragma unroll
      for (int32_t s = 0; s < kSegments; ++s) Store::To::find(params, at[s], where[s]);
    }
    MOEJIT_DEVICE void finish(const RowChainParams& params, Team& team) const {
      if constexpr (Store::kHasPads) {
        if (kind == RowKind::kPad)
          return store(
              params, [](int32_t) { return Codes{}; }, 0.0f);
      }
      Rounded rounded[kSegments];
      float amax = 0.0f;
#pragma unroll
      for (int32_t s = 0; s < kSegments; ++s) {
        rounded[s] = QuantizeNone::apply(Transform::apply(Load::unpack(fetched[s])));
        amax = ptx::max_number(amax, magnitude_of_lane(rounded[s]));
      }
      const BlockScale scale = e4m3_scale_from_amax<kEpsilonBits>(team.max(amax));
      store(
          params, [&](int32_t s) { return codes_of(rounded[s], scale.scale); }, scale.scale_inv);
    }

   private:
    MOEJIT_DEVICE SegmentPosition<kColumns> position(int64_t row, int32_t s) const {
      const int32_t index = (s * kTeamWarps + Team::warp()) * kWarpSegments + segment_of_lane();
      return {row, index, index < SegmentPosition<kColumns>::kPerRow ? kind : RowKind::kAbsent};
    }
    template <typename CodesOf>
    MOEJIT_DEVICE void store(const RowChainParams& params, const CodesOf& codes,
                             float scale_inv) const {
#pragma unroll
      for (int32_t s = 0; s < kSegments; ++s) {
        Store::store(params, at[s], where[s], codes(s), scale_inv);
      }
    }
  };
};

}  // namespace moejit::device
