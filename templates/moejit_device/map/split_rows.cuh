// SPDX-License-Identifier: Apache-2.0
#pragma once

// SplitRows: what Route tells of ids, of rows that lie in the order of experts already. Expert e
// has the next tokens_per_expert[e] rows; rows behind the last expert's belong to nobody.
//
// Every CTA adds up the numbers of rows. The first one writes counts, offs, and colwise_offs with
// kHasColwiseOffs. With kHasRowMap, CTA c of C then writes the destinations of the rows of the
// experts c, c + C, ...: they differ from the rows' places where groups are aligned.
//
// A number below 0 is a mistake, which the status word tells, and means no rows. Rows beyond the T
// that are there are dropped, which the status word tells too.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/map/split_rows.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kLocalExperts = 256;
//   constexpr int32_t kSplitsAlignment = 1;
//   constexpr int32_t kWarps = 4;
//   constexpr bool kHasRowMap = false;
//   constexpr bool kHasColwiseOffs = true;
//
//   using Kernel = SplitRows<kLocalExperts, kSplitsAlignment, kWarps, kHasRowMap, kHasColwiseOffs,
//                            int32_t>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_split_rows_..., RouteParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/map/route.cuh"

namespace moejit::device {

template <int32_t kLocalExperts, int32_t kSplitsAlignment, int32_t kWarps, bool kHasRowMap,
          bool kHasColwiseOffs, typename Count>
struct SplitRows : Route<kLocalExperts, 1, kSplitsAlignment, kWarps, kHasColwiseOffs> {
  using Base = Route<kLocalExperts, 1, kSplitsAlignment, kWarps, kHasColwiseOffs>;

  MOEJIT_DEVICE static void run(const RouteParams& params) { SplitRows(params).group(); }

 private:
  MOEJIT_DEVICE explicit SplitRows(const RouteParams& params)
      : Base(params, 0, 0, ptx::cta_index() == 0),
        sizes_(ptx::global(static_cast<const Count*>(params.topk_ids))) {}

  MOEJIT_DEVICE void group() const {
    Base::save_tokens();
    if (ptx::warp_index() == 0) {
      take_sizes();
      ptx::sync_warp();  // each lane reads the sizes that it stored, others the starts
      Base::place_experts();
    }
    if constexpr (kHasRowMap) {
      ptx::sync_cta();  // the sizes, the places in x and the starts are there
      for (int32_t e = ptx::cta_index(); e < kLocalExperts; e += ptx::cta_count()) map_rows(e);
      if (Base::is_first_) map_rest();
    }
  }

  // Returns the first row of an expert in x.
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> places() { return Base::of_warp(0); }

  // One warp takes the sizes, cut at the T rows that are there. Each lane has a run of neighboring
  // experts.
  MOEJIT_DEVICE void take_sizes() const {
    constexpr int32_t kRun = ceil_div(kLocalExperts, int32_t{32});
    const int32_t first = smaller(ptx::lane_index() * kRun, kLocalExperts);
    const int32_t end = smaller(first + kRun, kLocalExperts);
    const int64_t tokens = Base::params_.tokens;
    bool is_bad = false, is_dropped = false;
    int64_t rows = 0;
    for (int32_t e = first; e < end; ++e) {
      const int64_t size = ptx::load(sizes_ + e);
      const int64_t most = smaller(larger(size, int64_t{0}), tokens);
      is_bad |= size < 0;
      is_dropped |= most < size;
      ptx::store(Base::from_part_on() + e, static_cast<int32_t>(most));
      rows += most;
    }
    int64_t place = smaller(Base::sum_of_lanes_below(rows), tokens);
    for (int32_t e = first; e < end; ++e) {
      const int64_t most = ptx::load(Base::from_part_on() + e);
      const int64_t size = smaller(most, tokens - place);
      is_dropped |= size < most;
      ptx::store(Base::before_part() + e, 0);
      ptx::store(Base::from_part_on() + e, static_cast<int32_t>(size));
      ptx::store(places() + e, static_cast<int32_t>(place));
      place += size;
    }
    if (Base::is_first_) {
      Base::set_status(is_bad, kStatusBadExpertId);
      Base::set_status(is_dropped, kStatusRowOverflow);
    }
  }

  // The first histogram holds the starts of the groups now.
  MOEJIT_DEVICE void map_rows(int32_t e) const {
    const int32_t size = ptx::load(Base::from_part_on() + e);
    const int32_t start = ptx::load(Base::before_part() + e);
    const auto map = ptx::global(Base::params_.row_map) + ptx::load(places() + e);
    for (int32_t i = ptx::thread_index(); i < size; i += Base::kThreads)
      ptx::store(map + i, i < Base::max_rows_ - start ? start + i : Base::kNotRouted);
  }

  MOEJIT_DEVICE void map_rest() const {
    const int32_t last = kLocalExperts - 1;
    int64_t i = ptx::load(places() + last) + ptx::load(Base::from_part_on() + last);
    for (i += ptx::thread_index(); i < Base::params_.tokens; i += Base::kThreads)
      ptx::store(ptx::global(Base::params_.row_map) + i, Base::kNotRouted);
  }

  ptx::GlobalPtr<const Count> sizes_;
};

}  // namespace moejit::device
