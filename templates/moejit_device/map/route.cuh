// SPDX-License-Identifier: Apache-2.0
#pragma once

// Route: from top-k ids to counts, aligned offsets and the destination row of every (token, k).
// Destinations are ordered by expert, then token, then k.
//
// One CTA does it in one launch. The flattened ids are cut into one contiguous chunk per warp, and
// every warp has its own histogram over the experts in shared memory, [warps, E]:
//
//   rank     each warp walks its chunk in order, 32 ids a step: an id's rank is the number of equal
//            ids before it in the chunk. row_map holds the ranks for now, the histogram the totals
//   base     histogram[w][e] becomes the destination of the first id e in the chunk of warp w:
//            the aligned start of e plus what the warps before w have
//   place    destination = base + rank
//
// A warp owns its histogram, so nothing is atomic and every step has one order. Rows at or beyond
// the bound P are dropped; everything kept in the histogram is cut at P, so nothing overflows.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/map/route.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kLocalExperts = 256;
//   constexpr int32_t kTopK = 8;
//   constexpr int32_t kSplitsAlignment = 128;
//   constexpr int32_t kWarps = 32;
//
//   using Kernel = Route<kLocalExperts, kTopK, kSplitsAlignment, kWarps>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_route_..., RouteParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/route_params.h"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

template <int32_t kLocalExperts, int32_t kTopK, int32_t kSplitsAlignment, int32_t kWarps>
struct Route {
  static_assert(kLocalExperts > 0 && kTopK > 0, "there is something to route");
  static_assert(kSplitsAlignment > 0, "the alignment is a number of rows");
  static_assert(kWarps > 0 && kWarps <= 32, "one CTA has 1 to 32 warps");

  static constexpr int32_t kThreads = 32 * kWarps;
  static constexpr int32_t kCtasPerSm = 1;
  static constexpr int32_t kSharedBytes = 4 * kWarps * kLocalExperts;

  MOEJIT_DEVICE static void run(const RouteParams& params) {
    if (ptx::cta_index() != 0) return;
    const Route route(params);
    route.rank();
    ptx::sync_cta();  // all histograms are complete
    route.add_up_warps();
    ptx::sync_cta();  // the last row holds each expert's total
    if (ptx::warp_index() == 0) route.place_experts();
    ptx::sync_cta();  // the last row holds each expert's start
    route.make_bases();
    ptx::sync_cta();  // each row holds its warp's first destinations
    route.place();
  }

 private:
  static constexpr int32_t kNotRouted = -1;
  static constexpr int32_t kBatch = 8;  // ids that a lane loads before it uses the first

  MOEJIT_DEVICE explicit Route(const RouteParams& params)
      : ids_(ptx::global(params.topk_ids)),
        params_(params),
        max_rows_(static_cast<int32_t>(smaller(params.max_rows, int64_t{0x7fffffff}))) {
    const int64_t total = params.tokens * kTopK;
    const int64_t chunk = align_up(ceil_div(total, int64_t{kWarps}), int64_t{32});
    begin_ = smaller(ptx::warp_index() * chunk, total);
    end_ = smaller(begin_ + chunk, total);
  }

  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> histogram(int32_t warp) {
    return ptx::shared<int32_t>(0) + warp * kLocalExperts;
  }

  // Calls visit(position, id, mapped) for the ids of this warp's chunk, 32 neighbours at a time;
  // lanes past the end get kNotRouted. `mapped` is what row_map holds there if kWithMap. Ids that
  // are no expert are kNotRouted too; returns whether this lane saw one below -1 or at or above E.
  template <bool kWithMap, typename Visit>
  MOEJIT_DEVICE bool for_each_id(Visit visit) const {
    const auto row_map = ptx::global(params_.row_map);
    bool is_bad = false;
    for (int64_t first = begin_; first < end_; first += 32 * kBatch) {
      int32_t id[kBatch];
      int32_t mapped[kBatch];
#pragma unroll
      for (int32_t i = 0; i < kBatch; ++i) {
        const int64_t position = first + 32 * i + ptx::lane_index();
        id[i] = position < end_ ? ptx::load(ids_ + position) : kNotRouted;
        mapped[i] = kWithMap && position < end_ ? ptx::load(row_map + position) : 0;
      }
#pragma unroll
      for (int32_t i = 0; i < kBatch; ++i) {
        if (first + 32 * i >= end_) break;
        const bool is_expert = id[i] >= 0 && id[i] < kLocalExperts;
        is_bad |= !is_expert && id[i] != kNotRouted;
        visit(first + 32 * i + ptx::lane_index(), is_expert ? id[i] : kNotRouted, mapped[i]);
      }
    }
    return is_bad;
  }

  MOEJIT_DEVICE void set_status(bool lane_saw_it, uint32_t bit) const {
    const bool warp_saw_it = ptx::ballot(lane_saw_it) != 0;
    if (warp_saw_it && ptx::lane_index() == 0) ptx::atomic_or(ptx::global(params_.status), bit);
  }

  MOEJIT_DEVICE void rank() const {
    const auto own = histogram(ptx::warp_index());
    const auto row_map = ptx::global(params_.row_map);
    const uint32_t lanes_below = (1u << ptx::lane_index()) - 1u;
    for (int32_t e = ptx::lane_index(); e < kLocalExperts; e += 32) ptx::store(own + e, 0);
    ptx::sync_warp();  // zeros before ranks
    const bool is_bad = for_each_id<false>([&](int64_t position, int32_t id, int32_t) {
      const bool is_routed = id != kNotRouted;
      const uint32_t equal = lanes_with_equal(is_routed ? id : kLocalExperts);
      const int32_t before = is_routed ? ptx::load(own + id) : 0;
      const int32_t below = ptx::population_count(equal & lanes_below);
      ptx::sync_warp();  // every lane has read before the counters move on
      if (is_routed && below == 0) ptx::store(own + id, before + ptx::population_count(equal));
      ptx::sync_warp();  // the next step reads what was stored
      if (position < end_) ptx::store(row_map + position, before + below);
    });
    set_status(is_bad, kStatusBadExpertId);
  }

  // The lanes that hold the same id, 0 <= id <= E. A ballot for each bit: on an H200 the match
  // instruction takes several times as long.
  MOEJIT_DEVICE static uint32_t lanes_with_equal(int32_t id) {
    uint32_t equal = 0xffffffffu;
#pragma unroll
    for (int32_t bit = 0; (kLocalExperts >> bit) != 0; ++bit) {
      const bool is_set = ((id >> bit) & 1) != 0;
      const uint32_t with_bit = ptx::ballot(is_set);
      equal &= is_set ? with_bit : ~with_bit;
    }
    return equal;
  }

  // histogram[w][e] becomes the number of ids e in the warps 0 to w.
  MOEJIT_DEVICE void add_up_warps() const {
    for (int32_t e = ptx::thread_index(); e < kLocalExperts; e += kThreads) {
      int32_t sum = 0;
#pragma unroll 8
      for (int32_t w = 0; w < kWarps; ++w) {
        sum += ptx::load(histogram(w) + e);
        ptx::store(histogram(w) + e, sum);
      }
    }
  }

  // One warp turns the totals in the last row into starts, and writes counts and offs. Each lane
  // has a run of neighbouring experts.
  MOEJIT_DEVICE void place_experts() const {
    constexpr int32_t kRun = ceil_div(kLocalExperts, int32_t{32});
    const auto last = histogram(kWarps - 1);
    const int32_t first = smaller(ptx::lane_index() * kRun, kLocalExperts);
    const int32_t end = smaller(first + kRun, kLocalExperts);
    int64_t rows = 0;
    for (int32_t e = first; e < end; ++e) rows += aligned(ptx::load(last + e));
    const int64_t before = sum_of_lanes_below(rows);
    int32_t start = static_cast<int32_t>(smaller(before, int64_t{max_rows_}));
    for (int32_t e = first; e < end; ++e) {
      const int32_t total = ptx::load(last + e);
      const int32_t left = max_rows_ - start;
      ptx::store(ptx::global(params_.offs) + e, start);
      ptx::store(ptx::global(params_.counts) + e, smaller(total, left));
      ptx::store(last + e, start);
      start += static_cast<int32_t>(smaller(aligned(total), int64_t{left}));
    }
    if (first < end && end == kLocalExperts) {
      ptx::store(ptx::global(params_.offs) + kLocalExperts, start);
    }
  }

  MOEJIT_DEVICE static int64_t aligned(int32_t count) {
    return align_up(int64_t{count}, int64_t{kSplitsAlignment});
  }

  MOEJIT_DEVICE static int64_t sum_of_lanes_below(int64_t value) {
    int64_t sum = value;
#pragma unroll
    for (int32_t distance = 1; distance < 32; distance *= 2) {
      const int64_t lower = ptx::shuffle_up(sum, distance);
      if (ptx::lane_index() >= distance) sum += lower;
    }
    return sum - value;
  }

  MOEJIT_DEVICE void make_bases() const {
    for (int32_t e = ptx::thread_index(); e < kLocalExperts; e += kThreads) {
      const int32_t start = ptx::load(histogram(kWarps - 1) + e);
      const int32_t left = max_rows_ - start;
#pragma unroll 8
      for (int32_t w = kWarps - 1; w > 0; --w) {
        const int32_t before = ptx::load(histogram(w - 1) + e);
        ptx::store(histogram(w) + e, start + smaller(before, left));
      }
      ptx::store(histogram(0) + e, start);
    }
  }

  MOEJIT_DEVICE void place() const {
    const auto base = histogram(ptx::warp_index());
    const auto row_map = ptx::global(params_.row_map);
    bool is_dropped = false;
    // Each lane finds the ranks that it stored itself.
    for_each_id<true>([&](int64_t position, int32_t id, int32_t rank) {
      if (position >= end_) return;
      const bool is_routed = id != kNotRouted;
      const int32_t first = is_routed ? ptx::load(base + id) : 0;
      const bool fits = is_routed && rank < max_rows_ - first;
      is_dropped |= is_routed && !fits;
      ptx::store(row_map + position, fits ? first + rank : kNotRouted);
    });
    set_status(is_dropped, kStatusRowOverflow);
  }

  ptx::GlobalPtr<const int32_t> ids_;
  const RouteParams& params_;
  int32_t max_rows_;
  int64_t begin_;  // of this warp's chunk of the flattened ids
  int64_t end_;
};

}  // namespace moejit::device
