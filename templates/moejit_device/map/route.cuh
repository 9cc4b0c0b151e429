// SPDX-License-Identifier: Apache-2.0
#pragma once

// Route: from top-k ids to counts, aligned offsets and the destination row of every (token, k).
// Destinations are ordered by expert, then token, then k.
//
// One launch, any number of CTAs, and none waits for another: each CTA places a contiguous part of
// the flattened ids and counts all of them itself, which is cheap and tells it what lies before its
// part. A part is cut into one chunk per warp. In shared memory are 2 + warps histograms over the
// experts:
//
//   count    ids before this CTA's part, and ids from there on
//   rank     each warp walks its chunk in order, 32 ids a step: an id's rank is the number of equal
//            ids before it in the chunk. row_map holds the ranks for now, the warp's histogram the
//            totals
//   base     the warp's histogram becomes the destination of its first id e: the aligned start of e
//            plus what lies before the chunk
//   place    destination = base + rank
//
// Ids are int32, or as Id says int64. One at or above E is a mistake, which the status word tells,
// or with kIgnoresForeign an expert of another rank, as -1 is.
//
// Operands of wgrad hold tokens as columns, and their groups start at multiples of 128: with
// kHasColwiseOffs these starts are written too.
//
// Counting by atomics has no fixed order, and sums do not depend on it; a warp owns its histogram.
// Rows at or beyond the bound P are dropped; starts and bases are cut at P, so nothing overflows.
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

template <int32_t kLocalExperts, int32_t kTopK, int32_t kSplitsAlignment, int32_t kWarps,
          bool kHasColwiseOffs = false, typename Id = int32_t, bool kIgnoresForeign = false,
          int32_t kFirstByte = 0>
struct Route {
  static_assert(kLocalExperts > 0 && kTopK > 0, "there is something to route");
  static_assert(kSplitsAlignment > 0, "the alignment is a number of rows");
  static_assert(kWarps > 0 && kWarps <= 32, "a CTA has 1 to 32 warps");

  using ChoiceId = Id;
  static constexpr int32_t kExperts = kLocalExperts, kChoices = kTopK;
  static constexpr int32_t kAlignment = kSplitsAlignment, kFirstSharedByte = kFirstByte;
  static constexpr int32_t kThreads = 32 * kWarps;
  static constexpr int32_t kCtasPerSm = 1;
  static constexpr int32_t kSharedBytes = kFirstByte + 4 * (2 + kWarps) * kLocalExperts;

  MOEJIT_DEVICE static void run(const RouteParams& params) {
    const int64_t total = params.tokens * kTopK;
    const int64_t part =
        kWarps * align_up(ceil_div(total, int64_t{ptx::cta_count()} * kWarps), int64_t{32});
    const Route route(params, smaller(ptx::cta_index() * part, total),
                      smaller((ptx::cta_index() + 1) * part, total), ptx::cta_index() == 0);
    route.save_tokens();
    route.place_part([&] { route.count(total); });
  }

  // A CTA's part of the flattened ids. The first one writes counts and offs.
  MOEJIT_DEVICE Route(const RouteParams& params, int64_t begin, int64_t end, bool is_first)
      : ids_(ptx::global(static_cast<const Id*>(params.topk_ids))),
        params_(params),
        max_rows_(static_cast<int32_t>(smaller(params.max_rows, int64_t{0x7fffffff}))),
        is_first_(is_first),
        part_begin_(begin) {
    const int64_t chunk = align_up(ceil_div(end - begin, int64_t{kWarps}), int64_t{32});
    begin_ = smaller(begin + ptx::warp_index() * chunk, end);
    end_ = smaller(begin_ + chunk, end);
  }

  // Places the ids of the part. Calls count_all() when the warps' histograms are on their way,
  // which adds the ids of all parts before this one to before_part(), and the others to
  // from_part_on(). Every thread calls.
  template <typename CountAll>
  MOEJIT_DEVICE void place_part(CountAll count_all) const {
    rank_part();
    count_all();
    place_ranked();
  }
  // Both halves of it. The warps' histograms are complete behind a barrier.
  MOEJIT_DEVICE void rank_part() const {
    clear();
    ptx::sync_cta();  // all histograms are zero
    rank();
  }
  MOEJIT_DEVICE void place_ranked() const {
    ptx::sync_cta();  // all histograms are complete
    if (ptx::warp_index() == 0) place_experts();
    ptx::sync_cta();  // the first histogram holds where this CTA's rows of an expert begin
    make_bases();
    ptx::sync_cta();  // each warp's histogram holds its first destinations
    place();
  }

  // Histograms over the experts, in shared memory.
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> before_part() {
    return ptx::shared<int32_t>(kFirstByte);
  }
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> from_part_on() {
    return before_part() + kLocalExperts;
  }
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> of_warp(int32_t warp) {
    return from_part_on() + (1 + warp) * kLocalExperts;
  }

 protected:
  static constexpr int32_t kNotRouted = -1;
  static constexpr int32_t kBadId = -2;
  static constexpr int32_t kBatch = 8;  // ids that a lane loads before it uses the first

  MOEJIT_DEVICE void save_tokens() const {
    const auto saved = ptx::global(params_.saved_tokens);
    if (saved && ptx::cta_index() == 0 && ptx::thread_index() == 0)
      ptx::store(saved, params_.tokens);
  }

  // Returns the id if it is an expert of this rank or kNotRouted. Other 64-bit ids become kBadId,
  // and foreign ids that are ignored kNotRouted.
  MOEJIT_DEVICE static int32_t judged(Id id) {
    if constexpr (kIgnoresForeign) {
      if (id >= kLocalExperts) return kNotRouted;
    }
    if constexpr (sizeof(Id) > sizeof(int32_t)) {
      if (id < kNotRouted || id >= kLocalExperts) return kBadId;
    }
    return static_cast<int32_t>(id);
  }

  MOEJIT_DEVICE void clear() const {
    for (int32_t i = ptx::thread_index(); i < (2 + kWarps) * kLocalExperts; i += kThreads) {
      ptx::store(before_part() + i, 0);
    }
  }

  MOEJIT_DEVICE void count(int64_t total) const {
    constexpr int32_t kStep = kThreads * kBatch;
    for (int64_t first = 0; first < total; first += kStep) {
      Id loaded[kBatch];
#pragma unroll
      for (int32_t i = 0; i < kBatch; ++i) {
        const int64_t position = first + kThreads * i + ptx::thread_index();
        loaded[i] = position < total ? ptx::load(ids_ + position) : Id{kNotRouted};
      }
#pragma unroll
      for (int32_t i = 0; i < kBatch; ++i) {
        const bool is_before = first + kThreads * i + ptx::thread_index() < part_begin_;
        const int32_t id = judged(loaded[i]);
        const bool is_expert = id >= 0 && id < kLocalExperts;
        if (is_expert) ptx::atomic_add((is_before ? before_part() : from_part_on()) + id, 1);
      }
    }
  }

  // Calls visit(position, id, mapped) for the ids of this warp's chunk, 32 neighbors at a time;
  // lanes past the end get kNotRouted. `mapped` is what row_map holds there if kWithMap. Ids that
  // are no expert are kNotRouted too; returns whether this lane saw one that is a mistake.
  template <bool kWithMap, typename Visit>
  MOEJIT_DEVICE bool for_each_id(Visit visit) const {
    const auto row_map = ptx::global(params_.row_map);
    bool is_bad = false;
    for (int64_t first = begin_; first < end_; first += 32 * kBatch) {
      Id loaded[kBatch];
      int32_t mapped[kBatch];
#pragma unroll
      for (int32_t i = 0; i < kBatch; ++i) {
        const int64_t position = first + 32 * i + ptx::lane_index();
        loaded[i] = position < end_ ? ptx::load(ids_ + position) : Id{kNotRouted};
        mapped[i] = kWithMap && position < end_ ? ptx::load(row_map + position) : 0;
      }
#pragma unroll
      for (int32_t i = 0; i < kBatch; ++i) {
        if (first + 32 * i >= end_) break;
        const int32_t id = judged(loaded[i]);
        const bool is_expert = id >= 0 && id < kLocalExperts;
        is_bad |= !is_expert && id != kNotRouted;
        visit(first + 32 * i + ptx::lane_index(), is_expert ? id : kNotRouted, mapped[i]);
      }
    }
    return is_bad;
  }

  // Or-s `bit` into the status word, if there is one, if any lane saw a reason.
  MOEJIT_DEVICE void set_status(bool lane_saw_it, uint32_t bit) const {
    const bool warp_saw_it = ptx::ballot(lane_saw_it) != 0;
    const auto status = ptx::global(params_.status);
    if (warp_saw_it && status && ptx::lane_index() == 0) ptx::atomic_or(status, bit);
  }

  MOEJIT_DEVICE void rank() const {
    const auto row_map = ptx::global(params_.row_map);
    const bool is_bad = for_each_id<false>([&](int64_t position, int32_t id, int32_t) {
      const int32_t before = count_equal(id);
      if (position < end_) ptx::store(row_map + position, before);
    });
    set_status(is_bad, kStatusBadExpertId);
  }

  // Counts the ids of a warp's lanes, each an expert or kNotRouted, in the warp's histogram.
  // Returns how many equal ids the warp has counted before, lanes below included.
  MOEJIT_DEVICE static int32_t count_equal(int32_t id) {
    const auto own = of_warp(ptx::warp_index());
    const uint32_t lanes_below = (1u << ptx::lane_index()) - 1u;
    const bool is_routed = id != kNotRouted;
    const uint32_t equal = lanes_with_equal(is_routed ? id : kLocalExperts);
    const int32_t before = is_routed ? ptx::load(own + id) : 0;
    const int32_t below = ptx::population_count(equal & lanes_below);
    ptx::sync_warp();  // every lane has read before the counters move on
    if (is_routed && below == 0) ptx::store(own + id, before + ptx::population_count(equal));
    ptx::sync_warp();  // the next step reads what was stored
    return before + below;
  }

  // Returns the lanes that hold the same id, 0 <= id <= E. It takes a ballot for each bit: on an
  // H200 the match instruction takes several times as long.
  MOEJIT_DEVICE static uint32_t lanes_with_equal(int32_t id) {
    uint32_t equal = 0xffffffffu;
#pragma unroll
    for (int32_t bit = 0; (kLocalExperts >> bit) != 0; ++bit) {
      const int32_t all_if_set = (id << (31 - bit)) >> 31;
      equal &= ~(ptx::ballot(all_if_set != 0) ^ static_cast<uint32_t>(all_if_set));
    }
    return equal;
  }

  // One warp turns the totals into starts; the first CTA writes counts and offs. Each lane has a
  // run of neighboring experts.
  MOEJIT_DEVICE void place_experts() const {
    constexpr int32_t kRun = ceil_div(kLocalExperts, int32_t{32});
    const int32_t first = smaller(ptx::lane_index() * kRun, kLocalExperts);
    const int32_t end = smaller(first + kRun, kLocalExperts);
    int64_t rows = 0;
    for (int32_t e = first; e < end; ++e) rows += aligned(total_of(e));
    const int64_t before = sum_of_lanes_below(rows);
    int32_t start = static_cast<int32_t>(smaller(before, int64_t{max_rows_}));
    for (int32_t e = first; e < end; ++e) {
      const int32_t total = total_of(e);
      const int32_t left = max_rows_ - start;
      if (is_first_) {
        ptx::store(ptx::global(params_.offs) + e, start);
        ptx::store(ptx::global(params_.counts) + e, smaller(total, left));
      }
      ptx::store(before_part() + e, start + smaller(ptx::load(before_part() + e), left));
      start += static_cast<int32_t>(smaller(aligned(total), int64_t{left}));
    }
    if (is_first_ && first < end && end == kLocalExperts) {
      ptx::store(ptx::global(params_.offs) + kLocalExperts, start);
    }
    if constexpr (kHasColwiseOffs) {
      if (is_first_) place_columns(first, end);
    }
  }

  // The lane that wrote the counts of experts `first` to `end` reads them again.
  MOEJIT_DEVICE void place_columns(int32_t first, int32_t end) const {
    constexpr int64_t kColumnAlignment = 128;
    const auto counts = ptx::global(params_.counts);
    const auto offs = ptx::global(params_.colwise_offs);
    int64_t columns = 0;
    for (int32_t e = first; e < end; ++e) {
      columns += align_up(int64_t{ptx::load(counts + e)}, kColumnAlignment);
    }
    int64_t start = sum_of_lanes_below(columns);
    for (int32_t e = first; e < end; ++e) {
      ptx::store(offs + e, static_cast<int32_t>(start));
      start += align_up(int64_t{ptx::load(counts + e)}, kColumnAlignment);
    }
    if (first < end && end == kLocalExperts) {
      ptx::store(offs + kLocalExperts, static_cast<int32_t>(start));
    }
  }

  MOEJIT_DEVICE static int32_t total_of(int32_t e) {
    return ptx::load(before_part() + e) + ptx::load(from_part_on() + e);
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
      int32_t count[kWarps];
#pragma unroll
      for (int32_t w = 0; w < kWarps; ++w) count[w] = ptx::load(of_warp(w) + e);
      int32_t base = ptx::load(before_part() + e);
#pragma unroll
      for (int32_t w = 0; w < kWarps; ++w) {
        ptx::store(of_warp(w) + e, base);
        base += smaller(count[w], max_rows_ - base);
      }
    }
  }

  MOEJIT_DEVICE void place() const {
    const auto base = of_warp(ptx::warp_index());
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

  ptx::GlobalPtr<const Id> ids_;
  const RouteParams& params_;
  int32_t max_rows_;
  bool is_first_;
  int64_t part_begin_;  // of this CTA's part of the flattened ids
  int64_t begin_;       // of this warp's chunk of it
  int64_t end_;
};

}  // namespace moejit::device
