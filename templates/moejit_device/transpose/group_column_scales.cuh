// SPDX-License-Identifier: Apache-2.0
#pragma once

// The scales of columns of bf16 rows: one for all of a group's rows in a column. A CTA looks at 64
// columns of a group: its warps take 64 rows in turn, in the arrangement of value_block.cuh, each
// thread with 16 loads of 16 bytes in flight, and exchange the largest magnitudes at the end. There
// are no sums and no atomics, so scales depend on nothing but the values.
//
// CTAs that run together look at the same columns of all groups, whose rows may be rows of the same
// tokens.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/transpose/group_column_scales.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kGroups = 8;
//   constexpr int32_t kColumns = 7168;
//   constexpr int32_t kRowBytes = 14336;
//   constexpr uint32_t kEpsilonBits = 0x2b8cbcccu;  // 1e-12
//   constexpr int32_t kThreads = 256;
//
//   using Kernel = GroupColumnScales<ExpertRows<kGroups>, kColumns, RowsInOrder<kRowBytes>,
//                                    kEpsilonBits, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_scale_..., TransposeParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/transpose/column_groups.cuh"
#include "moejit_device/transpose/row_source.cuh"
#include "moejit_device/transpose/value_block.cuh"

namespace moejit::device {

template <typename Groups, int32_t kColumns, typename Source, uint32_t kEpsilonBits,
          int32_t kThreads_>
struct GroupColumnScales {
  static_assert(kColumns > 0 && kColumns % 16 == 0, "rows begin at multiples of 16 bytes");
  static_assert(kThreads_ % 32 == 0 && kThreads_ > 0, "whole warps");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kWarpSlots = kPairColumns / kValueBlockColumns;  // of 16 bytes
  static constexpr int32_t kSharedBytes = kWarps * kWarpSlots * 16;
  // For the launch bounds: leaves a thread the registers that its block and its work need.
  static constexpr int32_t kCtasPerSm = larger(512 / kThreads, int32_t{1});

  // A CTA for each 64 columns of each group, or CTAs walk.
  MOEJIT_DEVICE static void run(const TransposeParams& params) {
    if (Groups::are_skipped(params)) return;
    for (int32_t own = ptx::cta_index();; own += ptx::cta_count()) {
      const int32_t strip = own / Groups::kGroups;
      const int32_t group = own - strip * Groups::kGroups;
      if (strip >= ceil_div(kColumns, kPairColumns)) return;
      const int32_t column = strip * kPairColumns + value_column();
      const bool has_column = kColumns % kPairColumns == 0 || column < kColumns;
      store(params, group, column, has_column, magnitudes(params, group, column, has_column));
      if constexpr (!Groups::kWalks) return;
      // Orders the reads of the slots before the writes of the next columns.
      ptx::sync_cta();
    }
  }

 private:
  // Returns the largest magnitudes of this lane's columns in the rows that its warp takes.
  MOEJIT_DEVICE static Bytes16 magnitudes(const TransposeParams& params, int32_t group,
                                          int32_t column, bool has_column) {
    constexpr int32_t kStep = 64;  // rows of a warp
    const RowRange rows = Groups::rows(params, group);
    Bytes16 amax = {};
    for (int64_t done = int64_t{ptx::warp_index()} * kStep; done < rows.count;
         done += int64_t{kWarps} * kStep) {
      const Source source(params, rows.first + done,
                          static_cast<int32_t>(smaller(rows.count - done, int64_t{kStep})));
      ValueBlock{source.fetch_block(params, 2 * column, has_column)}.raise_magnitudes(amax);
    }
    return max_of_row_groups(amax);
  }

  // Stores the scales of the CTA's columns: each lane of the first warp stores eight.
  MOEJIT_DEVICE static void store(const TransposeParams& params, int32_t group, int32_t column,
                                  bool has_column, const Bytes16& own) {
    const int32_t lane = ptx::lane_index();
    const auto slots = ptx::shared<Bytes16>(0);
    if (lane < kWarpSlots) ptx::store(slots + (ptx::warp_index() * kWarpSlots + lane), own);
    ptx::sync_cta();
    if (ptx::thread_index() >= kWarpSlots || !has_column) return;
    Bytes16 amax = own;
#pragma unroll
    for (int32_t w = 1; w < kWarps; ++w) {
      amax = larger_magnitudes(amax, ptx::load(slots + (w * kWarpSlots + lane)));
    }
    BlockScale scale[kValueBlockColumns];
    scales_of_magnitudes<kEpsilonBits>(amax, scale);
    store_scales(scale,
                 ptx::global(params.output_scale_inv) + (int64_t{group} * kColumns + column));
  }
};

}  // namespace moejit::device
