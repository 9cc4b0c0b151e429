// SPDX-License-Identifier: Apache-2.0
#pragma once

// The units of a combine between the warps of a CTA. One warp takes them and lists the rows of
// their tokens, others add these, and one does what is left to do behind the last row, after which
// the unit's place is free again. All of it is in shared memory.

#include "moejit_device/exchange/row_ring.cuh"
#include "moejit_device/exchange/token_ranks.cuh"
#include "moejit_device/params/exchange_params.h"

namespace moejit::device {

// A chunk of tokens of rank `home`: sums for other ranks are sent, sums for own tokens are added.
struct CombineUnit {
  int32_t home, chunk;  // -1: there are no more
};

// Has kUnitPlaces places for units, and three barriers for each. In a place are the unit's words,
// the lists of its tokens' rows, in the order in which they are added, which is descending, and the
// ranks that have experts of each token.
template <typename Exchange, int32_t kAdders, int32_t kFirstByte>
class UnitQueue {
  static constexpr int32_t kTopK = Exchange::kTopK, kTokens = Exchange::kChunkTokens;
  static constexpr int32_t kPlaces = kUnitPlaces, kChoices = kTokens * kTopK;
  static constexpr int32_t kWords = 2 + kChoices + 2 * kTokens;
  static constexpr int32_t kFirstWord = kFirstByte + 24 * kPlaces;
  static constexpr int32_t kUnsorted = kFirstWord + 4 * kPlaces * kWords;

 public:
  using Place = RingPlace<kPlaces>;
  static constexpr int32_t kEnd = kUnsorted + 4 * kChoices;

  // One thread calls, before all others.
  MOEJIT_DEVICE static void init() {
#pragma unroll
    for (int32_t i = 0; i < kPlaces; ++i) {
      ptx::init_mbarrier(is_told(i), 1);
      ptx::init_mbarrier(is_added(i), kAdders / 32);
      ptx::init_mbarrier(is_free(i), 1);
    }
  }

  // Do what the warp does that takes units: wait until a place is free, tell the others of a unit
  // there, and wait until its rows are added.
  MOEJIT_DEVICE static void await_free(const Place& at) {
    ptx::wait(is_free(at.place), at.parity ^ 1);
  }
  MOEJIT_DEVICE static void tell(const Place& at, CombineUnit unit) {
    ptx::sync_warp();
    if (ptx::lane_index() != 0) return;
    ptx::store(words(at), unit.home);
    ptx::store(words(at) + 1, unit.chunk);
    ptx::arrive(is_told(at.place));
  }
  MOEJIT_DEVICE static void await_added(const Place& at) {
    ptx::wait(is_added(at.place), at.parity);
  }

  // Do what other warps do: wait for a unit, and say that they have added its rows, or that its
  // place is free.
  MOEJIT_DEVICE static CombineUnit next(const Place& at) {
    ptx::wait(is_told(at.place), at.parity);
    return {ptx::load(words(at)), ptx::load(words(at) + 1)};
  }
  MOEJIT_DEVICE static void end_adding(const Place& at) {
    ptx::sync_warp();
    if (ptx::lane_index() == 0) ptx::arrive(is_added(at.place));
  }
  MOEJIT_DEVICE static void end(const Place& at) {
    ptx::sync_warp();
    if (ptx::lane_index() == 0) ptx::arrive(is_free(at.place));
  }

  // Lists the rows of `count` tokens, which row_map [S, K] and slot_ids [S, K] have from slot
  // `slot` on. One warp calls.
  MOEJIT_DEVICE static void list(const Place& at, const int32_t* row_map, const int32_t* slot_ids,
                                 int64_t slot, int32_t count) {
    constexpr int32_t kOfLane = ceil_div(kChoices, int32_t{32});
    int32_t row[kOfLane], id[kOfLane];
#pragma unroll
    for (int32_t i = 0; i < kOfLane; ++i) {
      const int32_t choice = i * 32 + ptx::lane_index();
      const bool exists = choice < count * kTopK;
      row[i] = exists ? ptx::load(ptx::global(row_map) + (slot * kTopK + choice)) : -1;
      id[i] = exists ? ptx::load(ptx::global(slot_ids) + (slot * kTopK + choice)) : -1;
    }
    const auto unsorted = ptx::shared<int32_t>(kUnsorted);
#pragma unroll
    for (int32_t i = 0; i < kOfLane; ++i) {
      const int32_t choice = i * 32 + ptx::lane_index();
      if (choice < kChoices) ptx::store(unsorted + choice, id[i] < 0 ? kElsewhere : row[i]);
    }
    ptx::sync_warp();
#pragma unroll
    for (int32_t i = 0; i < kOfLane; ++i) {
      const int32_t choice = i * 32 + ptx::lane_index();
      if (choice < count * kTopK) place(at, choice, row[i]);
    }
    ptx::sync_warp();  // the next list may be made
  }
  // Notes which ranks have experts of `count` own tokens from `first` on. One warp calls.
  MOEJIT_DEVICE static void note_ranks(const Place& at, const void* topk_ids, int64_t first,
                                       int32_t count) {
    for (int32_t begin = 0; begin < count; begin += kWarpSegments) {
      const int32_t token = begin + segment_of_lane();
      const uint32_t ranks = Exchange::ranks_of(topk_ids, first + token, token < count);
      if (segment_lane() == 0 && token < count) {
        ptx::store(ptx::as<uint32_t>(ranks_at(at) + token), ranks);
      }
    }
  }

  // Return how many rows a token has, -1 if none of its experts is here; the row at a place of its
  // list; and the ranks that have experts of it, a bit for each. Tokens count from the unit's first
  // on.
  MOEJIT_DEVICE static int32_t count(const Place& at, int32_t token) {
    return ptx::load(counts(at) + token);
  }
  MOEJIT_DEVICE static int32_t row(const Place& at, int32_t token, int32_t place) {
    return ptx::load(rows(at) + (token * kTopK + place));
  }
  MOEJIT_DEVICE static uint32_t ranks(const Place& at, int32_t token) {
    return static_cast<uint32_t>(ptx::load(ranks_at(at) + token));
  }

 private:
  static constexpr int32_t kElsewhere = -2;  // a choice that is no expert of this rank

  // Puts a row into the list of its token; who has the token's first choice counts.
  MOEJIT_DEVICE static void place(const Place& at, int32_t choice, int32_t row) {
    const int32_t token = choice / kTopK;
    const auto of_token = ptx::shared<int32_t>(kUnsorted) + token * kTopK;
    int32_t before = 0, listed = 0, is_here = 0;
#pragma unroll
    for (int32_t k = 0; k < kTopK; ++k) {
      const int32_t other = ptx::load(of_token + k);
      before += other > row ? 1 : 0;
      listed += other >= 0 ? 1 : 0;
      is_here |= other != kElsewhere ? 1 : 0;
    }
    if (row >= 0) ptx::store(rows(at) + (token * kTopK + before), row);
    if (choice % kTopK == 0) ptx::store(counts(at) + token, is_here != 0 ? listed : -1);
  }

  MOEJIT_DEVICE static ptx::Mbarrier is_told(int32_t place) {
    return ptx::shared<uint64_t>(kFirstByte) + place;
  }
  MOEJIT_DEVICE static ptx::Mbarrier is_added(int32_t place) { return is_told(kPlaces + place); }
  MOEJIT_DEVICE static ptx::Mbarrier is_free(int32_t place) { return is_told(2 * kPlaces + place); }
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> words(const Place& at) {
    return ptx::shared<int32_t>(kFirstWord) + at.place * kWords;
  }
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> rows(const Place& at) { return words(at) + 2; }
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> counts(const Place& at) {
    return rows(at) + kChoices;
  }
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> ranks_at(const Place& at) {
    return counts(at) + kTokens;
  }
};

}  // namespace moejit::device
