// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a CTA sends the rows of a chunk of tokens to the slots of these tokens, at each rank that has
// one of their experts. bf16 rows are quantized on the way, or not. What becomes of rows that this
// rank wants itself, Own says.

#include "moejit_device/exchange/chunk_walk.cuh"
#include "moejit_device/exchange/group.cuh"
#include "moejit_device/exchange/shared_rows.cuh"
#include "moejit_device/exchange/slots.cuh"
#include "moejit_device/params/row_chain_params.h"
#include "moejit_device/stage/load.cuh"
#include "moejit_device/stage/quantize.cuh"

namespace moejit::device {

// Fetches segments, quantizes them and calls visit(s, stored) for each. All lanes call.
template <typename Load, typename Quantize, int32_t kSegments, typename Visit>
MOEJIT_DEVICE void for_each_stored(const RowChainParams& rows,
                                   const SegmentPosition<Load::kColumns> (&at)[kSegments],
                                   Visit visit) {
  typename Load::Fetched fetched[kSegments];
#pragma unroll
  for (int32_t s = 0; s < kSegments; ++s) fetched[s] = Load::fetch(rows, at[s]);
#pragma unroll
  for (int32_t s = 0; s < kSegments; ++s) visit(s, Quantize::apply(Load::unpack(fetched[s])));
}

// Own rows go to their slots, as rows of others do.
struct OwnRowsToSlots {
  MOEJIT_DEVICE static constexpr bool needs_slots(int64_t /*chunk*/) { return true; }
  template <typename Rows>
  MOEJIT_DEVICE void find(int64_t, int32_t, int32_t) {}
  template <typename Rows>
  MOEJIT_DEVICE void take(int64_t, int32_t, int32_t) {}
};

// By stores of all threads, for rows of any length. Own rows go to their slots.
template <typename Load_, typename Quantize, typename Exchange, int32_t kThreads,
          int32_t kSegments = Load_::kSegmentsInFlight>
struct SendByThreads {
  using Load = Load_;
  static_assert(Quantize::kSegmentsPerScale == 1, "segments have scales of their own");
  static constexpr int32_t kColumns = Load::kColumns, kSharedBytes = 0;
  using Position = SegmentPosition<kColumns>;
  using Stored = decltype(Quantize::apply(Load::unpack(detail::made<typename Load::Fetched>())));

  // Sends a chunk. Calls raise(chunk) when the chunk's rows were stored. Every thread calls.
  template <typename Params, typename Own, typename Raise>
  MOEJIT_DEVICE void send(const Params& params, const ExchangeGroup& group,
                          const RowChainParams& rows, int64_t chunk, Own&, Raise raise) {
    for_each_segment<kColumns, kThreads, kSegments>(
        chunk * Exchange::kChunkTokens, Exchange::tokens_in_chunk(chunk, params.tokens),
        [&](const Position(&at)[kSegments]) {
          for_each_stored<Load, Quantize, kSegments>(
              rows, at,
              [&](int32_t s, const Stored& stored) { store(params, group, at[s], stored); });
        });
    raise(chunk);
  }
  template <typename Raise>
  MOEJIT_DEVICE void end(Raise) {}

 private:
  template <typename Params>
  MOEJIT_DEVICE static void store(const Params& params, const ExchangeGroup& group,
                                  const Position& at, const Stored& stored) {
    const uint32_t ranks = Exchange::ranks_of(params.topk_ids, at.row, at.is_real());
    Position slot = at;
    slot.row += group.rank() * int64_t{Exchange::kMaxTokens};
#pragma unroll
    for (int32_t to = 0; to < Exchange::kRanks; ++to) {
      slot.kind = ((ranks >> to) & 1u) != 0 ? RowKind::kReal : RowKind::kAbsent;
      store_slot(params.slots[to], params.slot_scales[to], slot, stored);
    }
  }
};

// Through shared memory, from where whole rows are copied: in large packets, and while the next
// ones are loaded. Half of the kRows rows are filled at a time. Own tells whether own rows of a
// chunk go to their slots. If not, find() and take() are called behind the copies to others, with a
// barrier between them.
template <typename Load_, typename Quantize, typename Exchange, int32_t kThreads, int32_t kRows,
          int32_t kFirstByte, int32_t kSegments = Load_::kSegmentsInFlight>
class SendThroughShared {
  static_assert(Quantize::kSegmentsPerScale == 1, "segments have scales of their own");
  static_assert(kRows % 2 == 0, "two halves of whole rows");

 public:
  using Load = Load_;
  static constexpr int32_t kColumns = Load::kColumns;
  using Position = SegmentPosition<kColumns>;
  using Stored = decltype(Quantize::apply(Load::unpack(detail::made<typename Load::Fetched>())));
  using Rows = SharedRows<Stored, kColumns, Exchange::kTopK, kRows, kFirstByte>;
  static constexpr int32_t kSharedBytes = Rows::kEnd;

  // Sends a chunk. Calls raise(chunk) for the chunk before when its rows have arrived. Every thread
  // calls.
  template <typename Params, typename Own, typename Raise>
  MOEJIT_DEVICE void send(const Params& params, const ExchangeGroup& group,
                          const RowChainParams& rows, int64_t chunk, Own& own, Raise raise) {
    const int32_t count = Exchange::tokens_in_chunk(chunk, params.tokens);
    if (count == 0) end(raise);
    for (int32_t begin = 0; begin < count; begin += kHalf) {
      const int64_t first = chunk * Exchange::kChunkTokens + begin;
      send_rows(params, group, rows, first, smaller(kHalf, count - begin), own,
                own.needs_slots(chunk));
      if (begin > 0 || sent_ < 0) continue;
      ptx::wait_bulk_stores<1>();
      raise(sent_);
    }
    sent_ = chunk;
  }
  // Calls raise() for the last chunk.
  template <typename Raise>
  MOEJIT_DEVICE void end(Raise raise) {
    if (sent_ < 0) return;
    ptx::wait_bulk_stores<0>();
    raise(sent_);
    sent_ = -1;
  }

 private:
  static constexpr int32_t kHalf = kRows / 2;
  static_assert(kHalf <= kThreads / kSegmentLanes && Exchange::kRanks <= kSegmentLanes,
                "lanes of a row each have a rank");

  template <typename Params, typename Own>
  MOEJIT_DEVICE void send_rows(const Params& params, const ExchangeGroup& group,
                               const RowChainParams& rows, int64_t first, int32_t tokens, Own& own,
                               bool own_to_slots) {
    const int32_t half = half_ * kHalf;
    half_ ^= 1;
    ptx::wait_bulk_stores_read<1>();
    ptx::sync_cta();  // the rows of this half have left
    for_each_segment<kColumns, kThreads, kSegments>(
        first, tokens, [&](const Position(&at)[kSegments]) {
          for_each_stored<Load, Quantize, kSegments>(
              rows, at, [&](int32_t s, const Stored& stored) {
                if (!at[s].exists()) return;
                Rows::put(at[s], half + static_cast<int32_t>(at[s].row - first), stored);
              });
        });
    ptx::fence_proxy_async();
    ptx::sync_cta();  // the rows are there
    const int64_t slot = group.rank() * int64_t{Exchange::kMaxTokens} + first;
    copy_rows(params, group, first, slot, half, tokens, own_to_slots);
    if (!own_to_slots) own.template find<Rows>(slot, half, tokens);
    ptx::sync_cta();  // everybody knows the ranks
    if constexpr (Rows::kAreScaled && !Rows::kCopiesScales) {
      store_scales(params, slot, half, tokens);
    }
    if (!own_to_slots) own.template take<Rows>(slot, half, tokens);
    ptx::commit_bulk_stores();
  }

  // Starts a copy of each row to each of its ranks, by a thread each, and of its scales: a fence
  // behind stores of threads would wait for all that the SM has on the wire.
  template <typename Params>
  MOEJIT_DEVICE static void copy_rows(const Params& params, const ExchangeGroup& group,
                                      int64_t first, int64_t slot, int32_t half, int32_t tokens,
                                      bool own_to_slots) {
    const int32_t row = ptx::thread_index() / kSegmentLanes, to = segment_lane();
    uint32_t ranks = Exchange::ranks_of(params.topk_ids, first + row, row < tokens);
    if (!own_to_slots) ranks &= ~(1u << group.rank());
    if (to == 0 && row < tokens) ptx::store(Rows::ranks(half + row), ranks);
    if (((ranks >> to) & 1u) == 0) return;
    const auto slots = ptx::global(static_cast<uint8_t*>(params.slots[to]));
    ptx::store_bulk(ptx::as<Bytes16>(slots + (slot + row) * Rows::kRowBytes), Rows::row(half + row),
                    Rows::kRowBytes);
    if constexpr (Rows::kCopiesScales) {
      const auto scales = ptx::global(params.slot_scales[to]) + (slot + row) * Rows::kPerRow;
      ptx::store_bulk(ptx::as<Bytes16>(scales), ptx::as<Bytes16>(Rows::scales(half + row)),
                      4 * Rows::kPerRow);
    }
  }

  template <typename Params>
  MOEJIT_DEVICE static void store_scales(const Params& params, int64_t slot, int32_t half,
                                         int32_t tokens) {
    for (int32_t i = ptx::thread_index(); i < tokens * Rows::kPerRow; i += kThreads) {
      const uint32_t ranks = ptx::load(Rows::ranks(half + i / Rows::kPerRow));
      const float scale = ptx::load(Rows::scales(half) + i);
#pragma unroll
      for (int32_t to = 0; to < Exchange::kRanks; ++to) {
        if (((ranks >> to) & 1u) == 0) continue;
        ptx::store(ptx::global(params.slot_scales[to]) + (slot * Rows::kPerRow + i), scale);
      }
    }
  }

  int64_t sent_ = -1;  // the chunk whose flag is due
  int32_t half_ = 0;
};

}  // namespace moejit::device
