// SPDX-License-Identifier: Apache-2.0
#pragma once

// The step of delayed scaling, for all columns of the states of fc1 and fc2 in one launch: largest
// magnitudes of this step join the history, and the scales of the next step follow. For a column
// with the history h[0], ..., h[L - 1], of which casts have raised h[0], and M, the format's
// largest number times 2^-margin, fl() rounding to fp32:
//
//   last = h[0]; where it is 0, nothing was cast, and the column stays as it is
//   A = last, or without kMostRecent the largest of h[1], ..., h[L - 1] and last
//   h[i] = h[i + 1] for i from 1 on, h[L - 1] = last, h[0] = 0
//   scale = fl(M / A) where A is finite and not 0, at most the largest finite number
//
// A warp has 32 neighboring columns, so that each row of a history is read in whole sectors, and
// the warps of a CTA share the rows. Each first reads the row behind its own, which the next warp
// overwrites.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/cast/update_scales.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kColumns = 24;
//   constexpr int32_t kLength = 1024;
//   constexpr uint32_t kMaxBits = 0x43e00000u;  // 448
//   constexpr bool kMostRecent = false;
//   constexpr int32_t kThreads = 1024;
//
//   using Kernel = UpdateScales<kColumns, kLength, kMaxBits, kMostRecent, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_update_scales_...,
//                 UpdateScalesParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/update_scales_params.h"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/convert.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/thread.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

template <int32_t kColumns, int32_t kLength, uint32_t kMaxBits, bool kMostRecent, int32_t kThreads_>
struct UpdateScales {
  static_assert(kLength > 0, "this step has a row");
  static_assert(kThreads_ % 32 == 0, "whole warps");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kCtasPerSm = 1;
  static constexpr int32_t kSharedBytes = 4 * kThreads;

  // Half of the CTAs have the state of fc1, the others the state of fc2.
  MOEJIT_DEVICE static void run(const UpdateScalesParams& params) {
    const bool is_fc1 = ptx::cta_index() < kCtas;
    const int32_t column = (ptx::cta_index() % kCtas) * 32 + ptx::lane_index();
    const auto history = ptx::global(is_fc1 ? params.fc1_amax_history : params.fc2_amax_history);
    const auto scale = ptx::global(is_fc1 ? params.fc1_scale : params.fc2_scale);
    update(history + column, scale + column, column < kColumns);
  }

 private:
  static constexpr int32_t kCtas = ceil_div(kColumns, 32);
  static constexpr int32_t kRows = ceil_div(kLength, kWarps);  // of a warp
  static constexpr int32_t kInFlight = 8;                      // rows loaded before one is stored

  // All threads pass the barriers, also those without a column.
  MOEJIT_DEVICE static void update(ptx::GlobalPtr<float> column, ptx::GlobalPtr<float> scale,
                                   bool exists) {
    const int32_t first = ptx::warp_index() * kRows;
    const int32_t end = smaller(first + kRows, kLength);
    const float last = exists ? ptx::load(column) : 0.0f;
    const bool rolls = last != 0.0f && first < end;
    const float behind = rolls && end < kLength ? load(column, end) : last;
    // Orders the reads of rows that other warps overwrite before those writes.
    ptx::sync_cta();
    float own = last;
    if (rolls) own = ptx::max_number(own, roll(column, first, end, behind));
    const auto slots = ptx::shared<float>(0);
    ptx::store(slots + ptx::thread_index(), own);
    // Orders the writes of the slots before their reads.
    ptx::sync_cta();
    if (ptx::warp_index() != 0 || last == 0.0f) return;
#pragma unroll
    for (int32_t w = 1; w < kWarps; ++w) {
      own = ptx::max_number(own, ptx::load(slots + (32 * w + ptx::lane_index())));
    }
    store_scale(scale, kMostRecent ? last : own);
  }

  MOEJIT_DEVICE static float load(ptx::GlobalPtr<float> column, int32_t row) {
    return ptx::load(column + int64_t{row} * kColumns);
  }

  // Gives each row from `first` to `end` what the row behind it holds, the last of them `behind`,
  // and row 0 a zero. Returns the largest value that it moved.
  MOEJIT_DEVICE static float roll(ptx::GlobalPtr<float> column, int32_t first, int32_t end,
                                  float behind) {
    float largest = behind;
    for (int32_t row = first; row < end; row += kInFlight) {
      float next[kInFlight];
#pragma unroll
      for (int32_t i = 0; i < kInFlight; ++i) {
        next[i] = row + i + 1 < end ? load(column, row + i + 1) : behind;
      }
#pragma unroll
      for (int32_t i = 0; i < kInFlight; ++i) {
        if (row + i >= end) break;
        largest = ptx::max_number(largest, next[i]);
        ptx::store(column + int64_t{row + i} * kColumns, row + i == 0 ? 0.0f : next[i]);
      }
    }
    return largest;
  }

  MOEJIT_DEVICE static void store_scale(ptx::GlobalPtr<float> scale, float amax) {
    constexpr uint32_t kInfinity = 0x7f800000u, kLargest = 0x7f7fffffu;
    if (!(amax > 0.0f) || ptx::bits_of(amax) == kInfinity) return;
    const uint32_t bits = ptx::bits_of(ptx::divide(ptx::float_from_bits(kMaxBits), amax));
    ptx::store(scale, ptx::float_from_bits(bits == kInfinity ? kLargest : bits));
  }
};

}  // namespace moejit::device
