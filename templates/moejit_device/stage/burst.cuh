// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reading ahead in bursts. Memory that has to turn from writing to reading every now and then is
// slower than both: 9 bytes written for each that is read go at 3.8 TB/s on an H200, writes alone
// at 4.6. So the CTAs that begin a burst of rows ask L2 for all rows of the next burst; those that
// use them find them there. Neither what is read nor any result depends on it.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/row_chain_params.h"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// Of the rows of Load, which Walk goes through step by step.
template <typename Load, typename Walk, int32_t kRows>
struct Bursts {
  static constexpr int64_t kNone = 0x7fffffffffffffff;
  static_assert(Load::kRowBytes % 16 == 0, "L2 is asked for multiples of 16 bytes");

  // At the beginning of a step, all threads.
  MOEJIT_DEVICE static void ask(const RowChainParams& params, int64_t step) {
    const int64_t row = row_to_ask_for(step, ptx::thread_index());
    if (row >= params.rows) return;
    const auto input = ptx::global(static_cast<const uint8_t*>(params.input));
    ptx::prefetch_to_l2(ptx::as<const Bytes16>(input + row * Load::kRowBytes), Load::kRowBytes);
  }

  // Each row from the second burst on in one thread of one step, before it is used; else kNone.
  MOEJIT_DEVICE static int64_t row_to_ask_for(int64_t step, int32_t thread) {
    if (thread >= kRowsPerStep) return kNone;
    const int64_t burst = step / kSteps;
    const int32_t index = static_cast<int32_t>(step - burst * kSteps) * kRowsPerStep + thread;
    return index < kRows ? (burst + 1) * kRows + index : kNone;
  }

 private:
  // Steps of a burst; in the first quarter of them L2 is asked for the next.
  static constexpr int32_t kSteps = ceil_div(kRows * Walk::kSegmentsPerRow, Walk::kStepSegments);
  static constexpr int32_t kRowsPerStep = ceil_div(4 * kRows, kSteps);
};

}  // namespace moejit::device
