// SPDX-License-Identifier: Apache-2.0
#pragma once

// Gradients of biases: for each group the sums of its rows' columns. A CTA takes 128 columns of a
// group. Every eight lanes add up some of the rows, each kWalkers-th, in ascending order; then a
// thread takes a column and adds the partial sums in ascending order. Nothing depends on the number
// of CTAs.

#include "moejit_device/bias/gradient_rows.cuh"
#include "moejit_device/map/call_tokens.cuh"
#include "moejit_device/map/splits.cuh"
#include "moejit_device/ptx/barrier.cuh"

namespace moejit::device {

// The first kSectionColumns columns of each of kSections equal parts of a row become output
// [E, kSections * kSectionColumns], part behind part, or with kInterleaved element by element in
// turn. With kTimesProb rows count with their probabilities. Groups without rows give zeros, or
// with kAdds leave what is there.
template <typename GradientRows, int32_t kGroups, int32_t kSections, int32_t kSectionColumns,
          bool kInterleaved, bool kTimesProb, bool kAdds, int32_t kThreads_>
struct ColumnSums {
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWalkers = kThreads / kSegmentLanes;
  static constexpr int32_t kCtasPerSm = larger(1024 / kThreads, int32_t{1});
  static constexpr int32_t kSharedBytes = kWalkers * kSegmentColumns * 4;
  static_assert(kThreads >= kSegmentColumns, "a thread for each column");
  static_assert(kSections == 1 || GradientRows::kColumns / kSections % kSegmentColumns == 0,
                "a segment lies in one part");

  MOEJIT_DEVICE static void run(const BiasGradientParams& params) {
    if (has_other_tokens(params.call)) return;
    constexpr int64_t kTiles = int64_t{kGroups} * kSections * kSectionSegments;
    for (int64_t tile = ptx::cta_index(); tile < kTiles; tile += ptx::cta_count()) {
      const auto group = static_cast<int32_t>(tile / (kSections * kSectionSegments));
      const auto of_group = static_cast<int32_t>(tile % (kSections * kSectionSegments));
      const int32_t section = of_group / kSectionSegments;
      const int32_t segment = of_group % kSectionSegments;
      const int32_t count = ptx::load(ptx::global(params.counts) + group);
      if (kAdds && count == 0) continue;
      add_rows(params, group, count, section * kPitchSegments + segment);
      ptx::sync_cta();  // partial sums are written
      add_partial_sums(params, group, section, segment * kSegmentColumns);
      ptx::sync_cta();  // and read
    }
  }

 private:
  static constexpr int32_t kSectionSegments = ceil_div(kSectionColumns, kSegmentColumns);
  static constexpr int32_t kPitchSegments =
      ceil_div(GradientRows::kColumns / kSections, kSegmentColumns);

  MOEJIT_DEVICE static void add_rows(const BiasGradientParams& params, int32_t group, int32_t count,
                                     int32_t segment) {
    const int32_t walker = ptx::thread_index() / kSegmentLanes;
    const int64_t begin = ptx::load(ptx::global(params.offs) + group);
    const int64_t end = smaller(begin + count, params.rows);
    float sum[kLaneColumns] = {};
#pragma unroll 4
    for (int64_t row = begin + walker; row < end; row += kWalkers) {
      GradientValues values = GradientRows::load(params, {row, segment, RowKind::kReal});
      if constexpr (kTimesProb) {
        const float prob = ptx::load(ptx::global(params.probs) + row);
        values.factor = ptx::multiply(values.factor, prob);
      }
#pragma unroll
      for (int32_t i = 0; i < kLaneColumns; ++i) {
        sum[i] = ptx::fused_multiply_add(values.value[i], values.factor, sum[i]);
      }
    }
    const auto partial = ptx::shared<float>(0) + walker * kSegmentColumns;
#pragma unroll
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      ptx::store(partial + GradientRows::column(i), sum[i]);
    }
  }

  MOEJIT_DEVICE static void add_partial_sums(const BiasGradientParams& params, int32_t group,
                                             int32_t section, int32_t first_column) {
    const int32_t thread = ptx::thread_index();
    const int32_t column = first_column + thread;
    if (thread >= kSegmentColumns || column >= kSectionColumns) return;
    float sum = 0.0f;
#pragma unroll 8
    for (int32_t walker = 0; walker < kWalkers; ++walker) {
      sum = ptx::add(sum, ptx::load(ptx::shared<float>(0) + (walker * kSegmentColumns + thread)));
    }
    const int32_t at =
        kInterleaved ? kSections * column + section : section * kSectionColumns + column;
    const auto to = ptx::global(params.output) +
                    (static_cast<int64_t>(group) * (kSections * kSectionColumns) + at);
    ptx::store(to, kAdds ? ptx::add(ptx::load(to), sum) : sum);
  }
};

}  // namespace moejit::device
