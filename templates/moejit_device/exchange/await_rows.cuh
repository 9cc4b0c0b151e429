// SPDX-License-Identifier: Apache-2.0
#pragma once

// Waits until the rows of all ranks have arrived, and begins the epoch's second half: one CTA. The
// kernels behind it on the stream read the slots.

#include "moejit_device/exchange/chunk_walk.cuh"
#include "moejit_device/exchange/group.cuh"
#include "moejit_device/exchange/slots.cuh"
#include "moejit_device/exchange/token_ranks.cuh"

namespace moejit::device {

template <typename Exchange, int32_t kThreads_>
struct AwaitRows {
  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kSharedBytes = 0;
  static constexpr int32_t kCtasPerSm = 1;

  MOEJIT_DEVICE static void run(const AwaitRowsParams& params) {
    const ExchangeGroup group = ExchangeGroup::before_arrival(params.group);
    for (int32_t i = ptx::thread_index(); i < Exchange::kRanks * Exchange::kChunks; i += kThreads) {
      group.wait(ptx::global(params.row_flags) + i, i / Exchange::kChunks);
    }
    ptx::sync_cta();
    if (ptx::thread_index() == 0) ptx::store(ptx::global(params.group.epoch), group.epoch);
  }
};

}  // namespace moejit::device
