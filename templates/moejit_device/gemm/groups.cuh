// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a scheduler learns how rows are split among groups: from memory, or from the ids of the
// call's choices.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/overlap.cuh"
#include "moejit_device/ptx/thread.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

// As a kernel before has written it. With kIsAhead the kernel before may still run, and the one
// that wrote this is complete.
template <bool kIsAhead>
class GroupsOfMemory {
 public:
  template <typename Params>
  MOEJIT_DEVICE GroupsOfMemory(const Params& params, uint32_t)
      : counts_(ptx::global(params.counts)), offs_(ptx::global(params.offs)) {}

  MOEJIT_DEVICE int32_t count(int32_t group) const { return load(counts_ + group); }
  MOEJIT_DEVICE int32_t begin(int32_t group) const { return load(offs_ + group); }

 private:
  MOEJIT_DEVICE static int32_t load(ptx::GlobalPtr<const int32_t> number) {
    if constexpr (kIsAhead) return ptx::load_past_l1(number);
    return ptx::load(number);
  }

  ptx::GlobalPtr<const int32_t> counts_;
  ptx::GlobalPtr<const int32_t> offs_;
};

// As each CTA finds it in the ids itself, in shared memory. So a kernel knows its tiles while the
// kernel before still routes. This is what Route writes where groups start at any row and no row is
// dropped. The ids are complete when the kernel begins.
template <int32_t kGroups, int32_t kTopK, typename Id>
class GroupsOfChoices {
 public:
  static constexpr int32_t kSharedBytes = 4 * (2 * kGroups + 1);

  // Clears the counts that lie from `first_byte` on. All threads, kThreads of them; a barrier
  // follows.
  template <int32_t kThreads>
  MOEJIT_DEVICE static void clear(uint32_t first_byte) {
    for (int32_t group = ptx::thread_index(); group < kGroups; group += kThreads)
      ptx::store(counts(first_byte) + group, 0);
  }

  // Counts the choices of each group. All threads; a barrier follows.
  template <int32_t kThreads, typename Params>
  MOEJIT_DEVICE static void count_all(const Params& params, uint32_t first_byte) {
    const auto ids = ptx::global(static_cast<const Id*>(params.topk_ids));
    for (int64_t i = ptx::thread_index(); i < params.call.tokens * kTopK; i += kThreads) {
      const Id id = ptx::load_past_l1(ids + i);
      if (id >= 0 && id < kGroups)
        ptx::atomic_add(counts(first_byte) + static_cast<int32_t>(id), 1);
    }
  }

  // Adds up where groups begin. All lanes of the one warp that asks.
  template <typename Params>
  MOEJIT_DEVICE GroupsOfChoices(const Params&, uint32_t first_byte) : counts_(counts(first_byte)) {
    const auto begins = counts_ + kGroups;
    int32_t before = 0;
#pragma unroll 1
    for (int32_t first = 0; first < kGroups; first += 32) {
      const int32_t group = first + ptx::lane_index();
      int32_t end = group < kGroups ? ptx::load(counts_ + group) : 0;
#pragma unroll
      for (int32_t distance = 1; distance < 32; distance *= 2) {
        const int32_t below = ptx::shuffle_up(end, distance);
        if (ptx::lane_index() >= distance) end += below;
      }
      if (group < kGroups) ptx::store(begins + (group + 1), before + end);
      before += ptx::shuffle(end, 31);
    }
    if (ptx::lane_index() == 0) ptx::store(begins, 0);
    ptx::sync_warp();  // all begins are there
  }

  MOEJIT_DEVICE int32_t count(int32_t group) const { return ptx::load(counts_ + group); }
  MOEJIT_DEVICE int32_t begin(int32_t group) const {
    return ptx::load(counts_ + (kGroups + group));
  }

 private:
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> counts(uint32_t first_byte) {
    return ptx::shared<int32_t>(first_byte);
  }

  ptx::SharedPtr<int32_t> counts_;  // [E], and [E + 1] begins behind them
};

}  // namespace moejit::device
