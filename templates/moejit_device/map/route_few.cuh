// SPDX-License-Identifier: Apache-2.0
#pragma once

// Route for few choices, inside of a kernel that moves rows: each CTA places all choices, and finds
// their destinations in shared memory. The first CTA also writes what Route writes.
//
// A thread loads its ids at once, before anything else, and finds them again in shared memory,
// where destinations take their places. The histograms are Route's. No thread needs the base of an
// expert it has no id of, so that a destination is added up where it is needed: the expert's start,
// the equal ids of the warps below, and the rank.

#include "moejit_device/map/route.cuh"
#include "moejit_device/map/splits.cuh"

namespace moejit::device {

// Routing is a Route. Calls have up to kMostChoices choices.
template <typename Routing, int32_t kMostChoices>
struct RouteFew : Routing {
  static constexpr int32_t kExperts = Routing::kExperts, kWarps = Routing::kThreads / 32;
  static constexpr int32_t kSharedBytes = Routing::kSharedBytes + 4 * (kMostChoices + 1);
  static constexpr bool kMayPad = Routing::kAlignment > 1;
  using Groups = Splits<kExperts, ptx::SharedPtr<int32_t>>;

  MOEJIT_DEVICE explicit RouteFew(const RouteParams& params)
      : Routing(params, 0, params.tokens * Routing::kChoices, ptx::cta_index() == 0) {}

  // Every thread calls. Behind it every thread may ask for destinations and groups.
  MOEJIT_DEVICE void place_all() const {
    Id loaded[kSteps];
#pragma unroll
    for (int32_t s = 0; s < kSteps; ++s) {
      const int64_t position = position_in(s);
      loaded[s] = position < this->end_ ? ptx::load(this->ids_ + position) : Id{-1};
    }
    this->save_tokens();
    this->clear();
#pragma unroll
    for (int32_t s = 0; s < kSteps; ++s) {
      if (position_in(s) < this->end_) ptx::store(place_in(s), Routing::judged(loaded[s]));
    }
    ptx::sync_cta();  // all histograms are zero
    rank_ids();
    ptx::sync_cta();  // all histograms are complete
    if (ptx::warp_index() == 0) {
      this->place_experts();
      ptx::sync_warp();  // the starts are there
      if (ptx::lane_index() == 0) ptx::store(end_of_rows(), end_of_last());
    }
    ptx::sync_cta();  // all starts are there
    place_ids();
    ptx::sync_cta();  // all destinations are there
  }

  // Returns the destination of a choice, or -1.
  MOEJIT_DEVICE static int32_t destination(int64_t choice) {
    return ptx::load(destinations() + static_cast<int32_t>(choice));
  }
  // The groups of rows, but for the end of the last one. Counts go on beyond the bound on rows.
  MOEJIT_DEVICE static Groups groups() { return {Routing::from_part_on(), Routing::before_part()}; }
  // Returns how many rows all groups have.
  MOEJIT_DEVICE static int32_t rows() { return ptx::load(end_of_rows()); }

 private:
  using Id = typename Routing::ChoiceId;
  static constexpr int32_t kSteps = ceil_div(kMostChoices, Routing::kThreads);
  static constexpr int32_t kRanks = 1 << 16;
  static_assert(kMostChoices <= kRanks && kExperts < kRanks / 2, "an int32 has expert and rank");

  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> destinations() { return Routing::of_warp(kWarps); }
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> end_of_rows() {
    return destinations() + kMostChoices;
  }

  MOEJIT_DEVICE int64_t position_in(int32_t step) const {
    return this->begin_ + 32 * step + ptx::lane_index();
  }
  // Where this lane's choice of a step has its id, then its expert and rank, then its destination.
  MOEJIT_DEVICE ptx::SharedPtr<int32_t> place_in(int32_t step) const {
    return destinations() + static_cast<int32_t>(position_in(step));
  }
  // The steps of this warp. Loops over them stay loops: for one token most of the time goes by
  // until instructions have come.
  MOEJIT_DEVICE int32_t steps() const {
    return static_cast<int32_t>(ceil_div(this->end_ - this->begin_, int64_t{32}));
  }

  MOEJIT_DEVICE void rank_ids() const {
    bool is_bad = false;
#pragma unroll 1
    for (int32_t s = 0; s < steps(); ++s) {
      const bool exists = position_in(s) < this->end_;
      const int32_t id = exists ? ptx::load(place_in(s)) : Routing::kNotRouted;
      const bool is_routed = id >= 0 && id < kExperts;
      is_bad |= !is_routed && id != Routing::kNotRouted;
      if (is_routed) ptx::atomic_add(Routing::from_part_on() + id, 1);
      const int32_t rank = Routing::count_equal(is_routed ? id : Routing::kNotRouted);
      if (exists) ptx::store(place_in(s), is_routed ? id * kRanks + rank : Routing::kNotRouted);
    }
    if (this->is_first_) this->set_status(is_bad, kStatusBadExpertId);
  }

  MOEJIT_DEVICE int32_t end_of_last() const {
    constexpr int32_t kLast = kExperts - 1;
    const int32_t start = groups().begin(kLast);
    return start + static_cast<int32_t>(smaller(Routing::aligned(groups().count(kLast)),
                                                int64_t{this->max_rows_ - start}));
  }

  MOEJIT_DEVICE void place_ids() const {
    const auto row_map = ptx::global(this->params_.row_map);
    bool is_dropped = false;
#pragma unroll 1
    for (int32_t s = 0; s < steps(); ++s) {
      if (position_in(s) >= this->end_) continue;
      const int32_t ranked = ptx::load(place_in(s));
      int32_t row = Routing::kNotRouted;
      if (ranked != Routing::kNotRouted) {
        const int32_t expert = ranked / kRanks;
        int32_t before = ranked % kRanks;
#pragma unroll 4
        for (int32_t warp = 0; warp < ptx::warp_index(); ++warp) {
          before += ptx::load(Routing::of_warp(warp) + expert);
        }
        const int32_t start = groups().begin(expert);
        if (before < this->max_rows_ - start) row = start + before;
        is_dropped |= row == Routing::kNotRouted;
      }
      ptx::store(place_in(s), row);
      if (this->is_first_) ptx::store(row_map + position_in(s), row);
    }
    if (this->is_first_) this->set_status(is_dropped, kStatusRowOverflow);
  }
};

}  // namespace moejit::device
