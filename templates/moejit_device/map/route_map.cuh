// SPDX-License-Identifier: Apache-2.0
#pragma once

// RouteMap: what Route tells of ids, from a map [T, E] of bytes that are not 0 where a token goes
// to an expert. It takes the record of Route, and reads the map through the pointer to ids. A token
// may have any number of experts up to K; with more, the ones with the largest ids are not routed,
// which the status word tells. A token's choices are its experts in ascending order, then none.
//
// It has the steps and the histograms of Route. What differs:
//
//   count    a thread reads all bytes of a token, and adds its first K experts to the histograms
//   rank     a warp walks its tokens in order, and a lane has the experts with its index modulo 32:
//            no lane needs to know of the others' counters. The ones before a lane's own give its
//            place among the token's choices
//   place    the same walk again
//
// Emitted kernels look like this:
//
//   #include "moejit_device/map/route_map.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kLocalExperts = 64;
//   constexpr int32_t kTopK = 8;
//   constexpr int32_t kSplitsAlignment = 1;
//   constexpr int32_t kWarps = 32;
//   constexpr bool kHasColwiseOffs = false;
//
//   using Kernel = RouteMap<kLocalExperts, kTopK, kSplitsAlignment, kWarps, kHasColwiseOffs>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_route_map_..., RouteParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/route.cuh"
#include "moejit_device/params/route_map_status.h"

namespace moejit::device {

template <int32_t kLocalExperts, int32_t kTopK, int32_t kSplitsAlignment, int32_t kWarps,
          bool kHasColwiseOffs>
struct RouteMap : Route<kLocalExperts, kTopK, kSplitsAlignment, kWarps, kHasColwiseOffs> {
  using Base = Route<kLocalExperts, kTopK, kSplitsAlignment, kWarps, kHasColwiseOffs>;

  MOEJIT_DEVICE static void run(const RouteParams& params) {
    RouteMap(params, ceil_div(params.tokens, int64_t{ptx::cta_count()} * kWarps)).route();
  }

 private:
  static constexpr int32_t kSteps = ceil_div(kLocalExperts, int32_t{32});  // of a token
  // How many are loaded before the first is used.
  static constexpr int32_t kStepsAtOnce = smaller(kSteps, Base::kBatch);
  static constexpr int32_t kTokensAtOnce = Base::kBatch / kStepsAtOnce;
  // Bytes of a token that a thread loads at once.
  static constexpr int32_t kRunBytes = kLocalExperts % 16 == 0  ? 16
                                       : kLocalExperts % 4 == 0 ? 4
                                                                : 1;

  // Each warp places `share` tokens.
  MOEJIT_DEVICE RouteMap(const RouteParams& params, int64_t share)
      : Base(params, 0, 0, ptx::cta_index() == 0),
        map_(ptx::global(static_cast<const uint8_t*>(params.topk_ids))),
        rows_(ptx::global(params.row_map)),
        part_(smaller(ptx::cta_index() * kWarps * share, params.tokens)),
        first_(smaller(part_ + ptx::warp_index() * share, params.tokens)),
        last_(smaller(first_ + share, params.tokens)) {}

  MOEJIT_DEVICE void route() const {
    Base::save_tokens();
    Base::clear();
    ptx::sync_cta();  // all histograms are zero
    rank_tokens();
    count_tokens();
    ptx::sync_cta();  // all histograms are complete
    if (ptx::warp_index() == 0) Base::place_experts();
    ptx::sync_cta();  // the first histogram holds where this CTA's rows of an expert begin
    Base::make_bases();
    ptx::sync_cta();  // each warp's histogram holds its first destinations
    place_tokens();
  }

  MOEJIT_DEVICE void count_tokens() const {
    const int64_t tokens = Base::params_.tokens;
    for (int64_t token = ptx::thread_index(); token < tokens; token += Base::kThreads) {
      const auto histogram = token < part_ ? Base::before_part() : Base::from_part_on();
      int32_t placed = 0;
      for (int32_t e = 0; e < kLocalExperts; e += kRunBytes) {
        count_run(map_ + (token * kLocalExperts + e), histogram + e, placed);
      }
    }
  }

  // Adds the experts of a run of bytes to counters, while a token has fewer than K.
  MOEJIT_DEVICE static void count_run(ptx::GlobalPtr<const uint8_t> run,
                                      ptx::SharedPtr<int32_t> counters, int32_t& placed) {
    if constexpr (kRunBytes == 16) {
      const Bytes16 loaded = ptx::load(ptx::as<const Bytes16>(run));
#pragma unroll
      for (int32_t w = 0; w < 4; ++w) count_word(loaded.word[w], counters + 4 * w, placed);
    } else if constexpr (kRunBytes == 4) {
      count_word(ptx::load(ptx::as<const uint32_t>(run)), counters, placed);
    } else {
      count_word(ptx::load(run), counters, placed);
    }
  }

  MOEJIT_DEVICE static void count_word(uint32_t word, ptx::SharedPtr<int32_t> counters,
                                       int32_t& placed) {
    while (word != 0) {
      const uint32_t lowest_bit = word & (0u - word);
      const int32_t byte = ptx::population_count(lowest_bit - 1u) / 8;
      word &= ~(0xffu << (8 * byte));
      if (placed++ < kTopK) ptx::atomic_add(counters + byte, 1);
    }
  }

  // row_map holds ranks for now, and the warp's histogram the totals, as in Route.
  MOEJIT_DEVICE void rank_tokens() const {
    const auto own = Base::of_warp(ptx::warp_index());
    bool has_too_many = false;
    for_each_choice(
        [&](int64_t position, int32_t e) {
          const int32_t rank = ptx::load(own + e);  // no other lane counts this expert
          ptx::store(own + e, rank + 1);
          ptx::store(rows_ + position, rank);
        },
        [&](int64_t token, int32_t placed) {
          has_too_many |= placed > kTopK;
          for (int32_t k = placed + ptx::lane_index(); k < kTopK; k += 32)
            ptx::store(rows_ + (token * kTopK + k), Base::kNotRouted);
        });
    Base::set_status(has_too_many, kStatusTooManyExperts);
  }

  // Each lane finds the ranks that it stored itself.
  MOEJIT_DEVICE void place_tokens() const {
    const auto base = Base::of_warp(ptx::warp_index());
    bool is_dropped = false;
    for_each_choice(
        [&](int64_t position, int32_t e) {
          const int32_t first = ptx::load(base + e);
          const int32_t rank = ptx::load(rows_ + position);
          const bool fits = rank < Base::max_rows_ - first;
          is_dropped |= !fits;
          ptx::store(rows_ + position, fits ? first + rank : Base::kNotRouted);
        },
        [](int64_t, int32_t) {});
    Base::set_status(is_dropped, kStatusRowOverflow);
  }

  // Calls visit(position, e) for the choices of this warp's tokens in the lanes that have their
  // experts, and end(token, experts) in all lanes behind each token.
  template <typename Visit, typename End>
  MOEJIT_DEVICE void for_each_choice(Visit visit, End end) const {
    for (int64_t token = first_; token < last_; token += kTokensAtOnce) {
      int32_t placed[kTokensAtOnce] = {};
      for (int32_t step = 0; step < kSteps; step += kStepsAtOnce) {
        bool is_one[kTokensAtOnce][kStepsAtOnce];
#pragma unroll
        for (int32_t t = 0; t < kTokensAtOnce; ++t)
#pragma unroll
          for (int32_t s = 0; s < kStepsAtOnce; ++s)
            is_one[t][s] = token + t < last_ && is_chosen(token + t, expert_at(step + s));
#pragma unroll
        for (int32_t t = 0; t < kTokensAtOnce; ++t) {
          if (token + t >= last_) break;
#pragma unroll
          for (int32_t s = 0; s < kStepsAtOnce; ++s) {
            const uint32_t ones = ptx::ballot(is_one[t][s]);
            const int32_t k = placed[t] + ptx::population_count(ones & lanes_below());
            if (is_one[t][s] && k < kTopK) visit((token + t) * kTopK + k, expert_at(step + s));
            placed[t] += ptx::population_count(ones);
          }
        }
      }
#pragma unroll
      for (int32_t t = 0; t < kTokensAtOnce; ++t)
        if (token + t < last_) end(token + t, placed[t]);
    }
  }

  MOEJIT_DEVICE bool is_chosen(int64_t token, int32_t e) const {
    return e < kLocalExperts && ptx::load(map_ + (token * kLocalExperts + e)) != 0;
  }

  // Returns this lane's expert in a step.
  MOEJIT_DEVICE static int32_t expert_at(int32_t step) { return step * 32 + ptx::lane_index(); }

  MOEJIT_DEVICE static uint32_t lanes_below() { return (1u << ptx::lane_index()) - 1u; }

  ptx::GlobalPtr<const uint8_t> map_;
  ptx::GlobalPtr<int32_t> rows_;
  int64_t part_;   // first token of this CTA's part
  int64_t first_;  // of this warp's tokens
  int64_t last_;   // behind them
};

}  // namespace moejit::device
