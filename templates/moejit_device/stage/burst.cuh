// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reading ahead in bursts. Where little is read for much that is written, memory does worse than
// with either alone: 9 bytes written for each that is read go at 3.8 TB/s on an H200, writes alone
// at 4.6. So the CTAs that begin a burst of rows ask L2 for all rows of the next one, and those
// that use them find them there. No result depends on it.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/row_chain_params.h"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// Bursts of the rows of Load, which Walk goes through step by step.
template <typename Load, typename Walk, int32_t kRows>
struct Bursts {
  static_assert(Load::kRowBytes % 16 == 0, "L2 is asked for multiples of 16 bytes");
  static_assert(kRows * Walk::kPerRow % Walk::kStepSegments == 0, "a burst is whole steps");

  // Asks for the rows. Called by all threads at the beginning of a step.
  MOEJIT_DEVICE static void ask(const RowChainParams& params, int64_t step) {
    visit(step, ptx::thread_index(), params.rows, [&](int64_t row) {
      const auto input = ptx::global(static_cast<const uint8_t*>(params.input));
      ptx::prefetch_to_l2(ptx::as<const Bytes16>(input + row * Load::kRowBytes), Load::kRowBytes);
    });
  }

  // Calls visit_row() with the row that the thread asks for in this step, if any. Each of `rows`
  // rows from the second burst on has one thread of one step, before it is used.
  template <typename VisitRow>
  MOEJIT_DEVICE static void visit(int64_t step, int32_t thread, int64_t rows,
                                  const VisitRow& visit_row) {
    if (thread >= kRowsPerStep) return;
    const int64_t burst = step / kSteps;
    const int32_t index = static_cast<int32_t>(step - burst * kSteps) * kRowsPerStep + thread;
    const int64_t row = (burst + 1) * kRows + index;
    if (index >= kRows || row >= rows) return;
    visit_row(row);
  }

 private:
  // Steps of a burst; in the first quarter of them L2 is asked for the next.
  static constexpr int32_t kSteps = kRows * Walk::kPerRow / Walk::kStepSegments;
  static constexpr int32_t kRowsPerStep = ceil_div(4 * kRows, kSteps);
};

}  // namespace moejit::device
