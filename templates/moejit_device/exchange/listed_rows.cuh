// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rows that experts of this rank made of the tokens of a chunk, listed in shared memory in the
// order in which they are added: descending. A warp lists a token's once, and all threads that add
// a part of its rows read the list, so that no load of rows waits for a sort.

#include "moejit_device/core/segment_sum.cuh"
#include "moejit_device/exchange/token_ranks.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/stage/position.cuh"

namespace moejit::device {

template <int32_t kColumns, int32_t kTopK, int32_t kTokens, int32_t kThreads, int32_t kFirstByte>
struct ListedRows {
  static_assert(kTopK <= 32, "a lane has each choice");
  // Words of a token: the number of rows, -1 if none of its experts is here, then rows.
  static constexpr int32_t kStride = kTopK + 1;
  static constexpr int32_t kEnd = kFirstByte + 4 * kStride * kTokens;
  using Position = SegmentPosition<kColumns>;

  // Lists the rows of `count` tokens, which row_map [S, K] and slot_ids [S, K] have from slot
  // `slot` on. Every thread calls, when nobody reads the lists of before any more.
  MOEJIT_DEVICE static void list(const int32_t* row_map, const int32_t* slot_ids, int64_t slot,
                                 int32_t count) {
    const int32_t lane = ptx::lane_index();
    for (int32_t token = ptx::warp_index(); token < count; token += kThreads / 32) {
      const int64_t choice = (slot + token) * kTopK + lane;
      const bool exists = lane < kTopK;
      const int32_t row = exists ? ptx::load(ptx::global(row_map) + choice) : -1;
      const int32_t id = exists ? ptx::load(ptx::global(slot_ids) + choice) : -1;
      int32_t before = 0;
#pragma unroll
      for (int32_t k = 0; k < kTopK; ++k) before += ptx::shuffle(row, k) > row ? 1 : 0;
      const int32_t rows = ptx::population_count(ptx::ballot(row >= 0));
      const bool is_here = ptx::ballot(id >= 0) != 0;
      if (row >= 0) ptx::store(rows_of(token) + before, row);
      if (lane == 0) ptx::store(words_of(token), is_here ? rows : -1);
    }
    ptx::sync_cta();
  }

  // Returns whether an expert of this rank is among the choices of a token, by its number in the
  // chunk.
  MOEJIT_DEVICE static bool has_expert(const Position& at) {
    return at.is_real() && ptx::load(words_of(at.row)) >= 0;
  }

  // Adds a segment of a token's rows, in fp32 from 0, and rounds the sum to bf16. at.row is the
  // token's number in the chunk. Every lane calls.
  MOEJIT_DEVICE static Bf16Segment sum(const void* expert_rows, const Position& at) {
    const auto input = ptx::global(static_cast<const Bf16*>(expert_rows));
    const int32_t count = at.is_real() ? ptx::load(words_of(at.row)) : 0;
    ValueSegment sum = {};
    if (ptx::ballot(count > kFew) == 0) {
      add_next<kFew>(input, at, 0, count, sum);
    } else {
      for (int32_t k = 0; ptx::ballot(k < count) != 0; k += kMany) {
        add_next<kMany>(input, at, k, count, sum);
      }
    }
    return pack_bf16(sum);
  }

 private:
  // Rows in flight: a rank of several has few of a token's.
  static constexpr int32_t kFew = smaller(kTopK, int32_t{2}), kMany = smaller(kTopK, int32_t{4});

  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> words_of(int64_t token) {
    return ptx::shared<int32_t>(kFirstByte) + static_cast<int32_t>(token) * kStride;
  }
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> rows_of(int64_t token) {
    return words_of(token) + 1;
  }

  // Adds the rows of a list from place k on. The last one is read in the place of those behind it:
  // loads that depend on a condition of their own would be started one by one.
  template <int32_t kRows>
  MOEJIT_DEVICE static void add_next(ptx::GlobalPtr<const Bf16> input, const Position& at,
                                     int32_t k, int32_t count, ValueSegment& sum) {
    Bf16Segment segment[kRows];
#pragma unroll
    for (int32_t i = 0; i < kRows; ++i) {
      const int32_t row =
          count > 0 ? ptx::load(rows_of(at.row) + smaller(k + i, count - 1)) : int32_t{0};
      segment[i] = fetch_runs(input, at, row, count > 0);
    }
#pragma unroll
    for (int32_t i = 0; i < kRows; ++i) {
      add_values(sum, unpack_bf16(segment[i]), k + i < count);
    }
  }
};

}  // namespace moejit::device
