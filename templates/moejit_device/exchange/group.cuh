// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the kernels of an exchange share: epochs, flags, waits that end.
//
// An exchange sends rows to the ranks of their experts (dispatch) and results home (combine). It
// has an epoch, the same number on all ranks. Who has written a part of a peer's memory raises a
// flag there: 8 bytes, the epoch in the upper half. Flags are never lowered, since an epoch's are
// above all before it.
//
// No barrier keeps memory from being written too early. A rank writes into a peer's slots again
// only in the next epoch, when all flags of the peer's results were raised, and the peer raises
// those after it has read its slots. It writes results again only after the peer's rows of the next
// epoch have come, which the peer sends after it has read the results. For that, each rank raises
// at least one flag of each kind towards every rank, also without tokens.
//
// A wait ends after the time-out: then the status word tells which rank was silent, all further
// waits of this rank end at once, and what the call computes means nothing.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/exchange_params.h"
#include "moejit_device/params/status_bits.h"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/system_memory.cuh"

namespace moejit::device {

// The view of one kernel.
struct ExchangeGroup {
  const GroupParams& params;
  uint32_t epoch;  // of this exchange

  // For kernels that run before the rows of the exchange have come and its epoch was counted up,
  // and for those after it.
  MOEJIT_DEVICE static ExchangeGroup before_arrival(const GroupParams& params) {
    return {params, ptx::load(ptx::global(params.epoch)) + 1};
  }
  MOEJIT_DEVICE static ExchangeGroup after_arrival(const GroupParams& params) {
    return {params, ptx::load(ptx::global(params.epoch))};
  }

  MOEJIT_DEVICE int32_t rank() const { return static_cast<int32_t>(params.rank); }

  // Raises a flag of each of the ranks, by as many threads, for what all threads of the CTA have
  // written before. Every thread calls.
  template <int32_t kRanks>
  MOEJIT_DEVICE void raise_everywhere(uint32_t* const (&flags)[kMostRanks], int64_t index) const {
    ptx::sync_cta();
    const int32_t to = ptx::thread_index();
    if (to < kRanks) raise_one(flags[to], index);
  }
  // Raises one flag.
  MOEJIT_DEVICE void raise(uint32_t* flags, int64_t index) const {
    ptx::sync_cta();
    if (ptx::thread_index() == 0) raise_one(flags, index);
  }
  // Raises one flag for what this thread has written before, and for what others had when they told
  // it.
  MOEJIT_DEVICE void raise_one(uint32_t* flags, int64_t index) const {
    // A store that releases would be a second fence: microseconds, while rows are on the wire.
    ptx::fence_system();
    ptx::store_relaxed_system(ptx::global(flags) + index, epoch);
  }

  // Waits for a flag of rank `from`. What the rank wrote before is then visible to this thread,
  // unless the wait ended without the flag.
  MOEJIT_DEVICE void wait(ptx::GlobalPtr<const uint32_t> flag, int32_t from) const {
    if (ptx::has_reached(ptx::load_acquire_system(flag), epoch) || is_broken()) return;
    const uint64_t deadline = ptx::global_nanoseconds() + static_cast<uint64_t>(params.timeout_ns);
    if (ptx::has_reached(ptx::wait_system(flag, epoch, deadline), epoch)) return;
    ptx::atomic_or(ptx::global(params.status), kStatusSilentRank | (kStatusFirstRank << from));
  }

  // Raises a flag of this rank for its own CTAs. Every thread calls.
  MOEJIT_DEVICE void raise_own(uint32_t* flags, int64_t index) const {
    ptx::sync_cta();
    if (ptx::thread_index() == 0) ptx::store_release_own(ptx::global(flags) + index, epoch);
  }
  // Waits for a flag that raise_own() raises in a CTA of this kernel. It waits for nobody beyond
  // the time-out, so that this wait ends too.
  MOEJIT_DEVICE void wait_for_own(ptx::GlobalPtr<const uint32_t> flag) const {
    ptx::wait_own(flag, epoch);
  }

  // Tells of a backward call that has another T than its forward call. The call goes on, so that no
  // peer waits: it touches nothing beyond its tensors, and what it computes means nothing.
  MOEJIT_DEVICE void check_tokens(const int64_t* saved_tokens, int64_t tokens) const {
    const auto saved = ptx::global(saved_tokens);
    if (!saved || ptx::cta_index() != 0 || ptx::thread_index() != 0) return;
    if (ptx::load(saved) != tokens) ptx::atomic_or(ptx::global(params.status), kStatusOtherTokens);
  }

 private:
  MOEJIT_DEVICE bool is_broken() const {
    const ptx::GlobalPtr<const uint32_t> status{params.status};
    return (ptx::load_acquire_system(status) & kStatusSilentRank) != 0;
  }
};

}  // namespace moejit::device
