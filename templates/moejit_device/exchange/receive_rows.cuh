// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a CTA takes rows from slots to their permuted rows. Store says what else becomes of a row: it
// is StorePermuted, or StoreRowsAndPermuted.

#include "moejit_device/exchange/chunk_walk.cuh"
#include "moejit_device/exchange/shared_rows.cuh"
#include "moejit_device/exchange/slots.cuh"
#include "moejit_device/ptx/barrier.cuh"

namespace moejit::device {

// By loads and stores of all threads, for rows of any length.
template <typename Stored, typename Store, typename Exchange, int32_t kThreads, int32_t kSegments>
struct ReceiveByThreads {
  static constexpr int32_t kColumns = Store::kColumns;
  using Position = SegmentPosition<kColumns>;

  MOEJIT_DEVICE void begin() {}
  MOEJIT_DEVICE void end() {}

  // Takes `count` rows from slot `first` on, which this thread or another one of its warp has
  // waited for. Every thread calls.
  MOEJIT_DEVICE void receive(const void* slots, const float* slot_scales,
                             const RowChainParams& rows, int64_t first, int32_t count) {
    for_each_segment<kColumns, kThreads, kSegments>(
        first, count, [&](const Position(&at)[kSegments]) {
          typename Store::Fetched where[kSegments];
          Stored arrived[kSegments];
          Position to[kSegments];
#pragma unroll
          for (int32_t s = 0; s < kSegments; ++s) where[s] = Store::fetch(rows, at[s]);
#pragma unroll
          for (int32_t s = 0; s < kSegments; ++s) {
            to[s] = at[s];
            if (!Store::is_permuted(where[s])) to[s].kind = RowKind::kAbsent;
            fetch_slot(slots, slot_scales, to[s], to[s].is_real(), arrived[s]);
          }
#pragma unroll
          for (int32_t s = 0; s < kSegments; ++s) Store::store(rows, to[s], where[s], arrived[s]);
        });
  }
};

// Through shared memory: whole rows are copied there and from there to each of their places.
template <typename Stored, typename Store, typename Exchange, int32_t kThreads, int32_t kRows,
          int32_t kFirstByte>
class ReceiveThroughShared {
  using Rows = SharedRows<Stored, Store::kColumns, Exchange::kTopK, kRows, kFirstByte>;
  using Permute = PermuteFromShared<Rows, Store, Exchange::kTopK, kThreads>;
  static constexpr int32_t kBarrier = kFirstByte - 16;
  static_assert(kRows <= kThreads / kSegmentLanes && kBarrier >= 16, "each row has a segment");

 public:
  // Every thread calls, before and behind all rows.
  MOEJIT_DEVICE void begin() {
    ptx::fence_proxy_async();
    ptx::sync_cta();  // what was in shared memory before is done with
    if (ptx::thread_index() == 0) {
      ptx::init_mbarrier(barrier(), kRows);
      ptx::fence_mbarrier_init();
    }
    ptx::sync_cta();
  }
  MOEJIT_DEVICE void end() { ptx::wait_bulk_stores_read<0>(); }

  // Receives rows as ReceiveByThreads::receive() does.
  MOEJIT_DEVICE void receive(const void* slots, const float* slot_scales,
                             const RowChainParams& params, int64_t first, int32_t count) {
    for (int32_t begin = 0; begin < count; begin += kRows) {
      receive_rows(slots, slot_scales, params, first + begin, smaller(kRows, count - begin));
    }
  }

 private:
  MOEJIT_DEVICE static ptx::Mbarrier barrier() { return ptx::shared<uint64_t>(kBarrier); }

  MOEJIT_DEVICE void receive_rows(const void* slots, const float* slot_scales,
                                  const RowChainParams& params, int64_t first, int32_t count) {
    const int32_t row = ptx::thread_index() / kSegmentLanes;
    ptx::wait_bulk_stores_read<0>();
    ptx::sync_cta();  // the rows before have left
    const bool is_wanted = Permute::find_places(params, first + row, row, row < count);
    if (row < kRows && segment_lane() == 0) load_row(slots, first + row, row, is_wanted);
    ptx::sync_cta();  // everybody knows the places
    Permute::store_scales(params, first, 0, count, [&](int32_t i) {
      return ptx::load_peer_data(ptx::global(slot_scales) + (first * Rows::kPerRow + i));
    });
    if (row >= kRows) return;
    ptx::wait(barrier(), parity_);
    parity_ ^= 1;
    if (is_wanted) Permute::copy_row(params, first + row, row);
    ptx::commit_bulk_stores();
  }

  // Each row arrives once, whether it is copied or not.
  MOEJIT_DEVICE static void load_row(const void* slots, int64_t slot, int32_t row, bool is_wanted) {
    ptx::arrive_expecting(barrier(), is_wanted ? Rows::kRowBytes : 0);
    if (!is_wanted) return;
    ptx::fence_proxy_async_global();  // what a flag told this thread is true of copies too
    const auto bytes = ptx::global(static_cast<const uint8_t*>(slots));
    ptx::load_bulk(Rows::row(row), ptx::as<const Bytes16>(bytes + slot * Rows::kRowBytes),
                   Rows::kRowBytes, barrier());
  }

  uint32_t parity_ = 0;
};

}  // namespace moejit::device
