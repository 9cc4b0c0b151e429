// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whole rows in the shared memory of a CTA, from where the tensor memory accelerator copies them,
// with what belongs to them: scales of e4m3 rows, the ranks that want a row, the places of its
// choices among the permuted rows. The eight lanes of a segment share a row.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/exchange/token_ranks.cuh"
#include "moejit_device/ptx/bulk_copy.cuh"
#include "moejit_device/stage/store_permuted.cuh"

namespace moejit::device {

template <typename Stored>
inline constexpr bool kHasScales = false;
template <>
inline constexpr bool kHasScales<QuantizedSegment> = true;

template <typename Stored, int32_t kColumns, int32_t kTopK, int32_t kRows, int32_t kFirstByte>
struct SharedRows {
  static_assert(kRows > 0 && kFirstByte % 16 == 0, "rows are copied as a whole");
  static constexpr bool kAreScaled = kHasScales<Stored>;
  static constexpr int32_t kPerRow = SegmentPosition<kColumns>::kPerRow;
  // Whether the scales of a row are whole runs of 16 bytes.
  static constexpr bool kCopiesScales = kAreScaled && kPerRow % 4 == 0;
  static constexpr int32_t kRowBytes = kAreScaled ? kColumns : 2 * kColumns;
  static constexpr int32_t kRanks = kFirstByte + kRows * kRowBytes;
  static constexpr int32_t kPlaces = kRanks + 4 * kRows;
  static constexpr int32_t kScales = align_up(kPlaces + 4 * kRows * kTopK, 16);
  static constexpr int32_t kEnd = kScales + (kAreScaled ? 4 * kRows * kPerRow : 0);

  MOEJIT_DEVICE static ptx::SharedPtr<Bytes16> row(int32_t row) {
    return ptx::shared<Bytes16>(kFirstByte + row * kRowBytes);
  }
  MOEJIT_DEVICE static ptx::SharedPtr<float> scales(int32_t row) {
    return ptx::shared<float>(kScales) + row * kPerRow;
  }
  // A bit for each rank that wants the row.
  MOEJIT_DEVICE static ptx::SharedPtr<uint32_t> ranks(int32_t row) {
    return ptx::shared<uint32_t>(kRanks) + row;
  }
  // The permuted row of each choice, -1: none. with_zeros() of a row: it gets zeros.
  MOEJIT_DEVICE static ptx::SharedPtr<int32_t> places(int32_t row) {
    return ptx::shared<int32_t>(kPlaces) + row * kTopK;
  }
  MOEJIT_DEVICE static int32_t with_zeros(int32_t place) { return -2 - place; }
  MOEJIT_DEVICE static int32_t without_zeros(int32_t place) {
    return place < -1 ? -2 - place : place;
  }

  MOEJIT_DEVICE static void put(const SegmentPosition<kColumns>& at, int32_t row,
                                const QuantizedSegment& segment) {
    const int32_t column = byte_column();
    if (at.is_inside(column)) {
      const int32_t offset = row * kRowBytes + at.index * kSegmentColumns + column;
      ptx::store(ptx::shared<Bytes16>(kFirstByte + offset), segment.bytes);
    }
    if (segment_lane() == 0) ptx::store(scales(row) + at.index, segment.scale_inv);
  }
  MOEJIT_DEVICE static void put(const SegmentPosition<kColumns>& at, int32_t row,
                                const Bf16Segment& segment) {
#pragma unroll
    for (int32_t run = 0; run < 2; ++run) {
      const int32_t column = run_column(run);
      if (!at.is_inside(column)) continue;
      const int32_t offset = row * kRowBytes + 2 * (at.index * kSegmentColumns + column);
      ptx::store(ptx::shared<Bytes16>(kFirstByte + offset), segment.run[run]);
    }
  }
};

// Takes rows from shared memory to their permuted rows, as Store does it from registers:
// StorePermuted, or StoreRowsAndPermuted.
template <typename Rows, typename Store, int32_t kTopK, int32_t kThreads>
struct PermuteFromShared {
  static constexpr int32_t kPerRow = Rows::kPerRow, kRowBytes = Rows::kRowBytes;

  // Tells the CTA where the row of a slot goes, and stores what lies beside it there. Returns
  // whether it goes anywhere, in all lanes of the row. Every lane calls.
  MOEJIT_DEVICE static bool find_places(const RowChainParams& params, int64_t slot, int32_t row,
                                        bool exists) {
    using To = typename Store::To;
    const SegmentPosition<Store::kColumns> at{
        .row = slot, .index = 0, .kind = exists ? RowKind::kReal : RowKind::kAbsent};
    bool is_wanted = false;
#pragma unroll
    for (int32_t k = 0; k < kTopK; k += kSegmentLanes) {
      const typename To::Batch batch = To::fetch(params, at, k);
      is_wanted |= (To::ballot_of_segment(batch.row >= 0) & ((1u << kSegmentLanes) - 1)) != 0;
      const int32_t choice = k + segment_lane();
      if (!exists || choice >= kTopK) continue;
      const bool is_zero = Store::kMovesProbs && batch.row >= 0 && batch.prob == 0.0f;
      ptx::store(Rows::places(row) + choice, is_zero ? Rows::with_zeros(batch.row) : batch.row);
      if (batch.row >= 0) Store::store_beside(params, at, batch);
      if (is_zero) store_zeros(params, batch.row);
    }
    return is_wanted;
  }

  // Stores the scales of `count` rows from slot `slot` on, which are at `row` and behind.
  // scale_of(i) is the i-th scale of these. Every thread calls.
  template <typename ScaleOf>
  MOEJIT_DEVICE static void store_scales(const RowChainParams& params, int64_t slot, int32_t row,
                                         int32_t count, ScaleOf scale_of) {
    if constexpr (!Rows::kAreScaled) return;
    for (int32_t i = ptx::thread_index(); i < count * kPerRow; i += kThreads) {
      const auto places = Rows::places(row + i / kPerRow);
      int32_t place[kTopK];
      bool is_wanted = false;
#pragma unroll
      for (int32_t k = 0; k < kTopK; ++k) {
        place[k] = Rows::without_zeros(ptx::load(places + k));
        is_wanted |= place[k] >= 0;
      }
      if (!is_wanted) continue;
      const float scale = scale_of(i);
#pragma unroll
      for (int32_t k = 0; k < kTopK; ++k) {
        if (place[k] < 0) continue;
        const int64_t at = place[k] * int64_t{kPerRow} + i % kPerRow;
        ptx::store(ptx::global(params.output_scale_inv) + at, scale);
      }
      if constexpr (Store::kKeepsRows) {
        ptx::store(ptx::global(params.kept_scale_inv) + (slot * kPerRow + i), scale);
      }
    }
  }

  // Starts the copies of a slot's row, by the lanes of the row.
  MOEJIT_DEVICE static void copy_row(const RowChainParams& params, int64_t slot, int32_t row) {
    const auto output = ptx::global(static_cast<uint8_t*>(params.output));
#pragma unroll
    for (int32_t k = 0; k < kTopK; k += kSegmentLanes) {
      const int32_t choice = k + segment_lane();
      const int32_t place = choice < kTopK ? ptx::load(Rows::places(row) + choice) : -1;
      if (place < 0) continue;
      ptx::store_bulk(ptx::as<Bytes16>(output + place * int64_t{kRowBytes}), Rows::row(row),
                      kRowBytes);
    }
    if constexpr (Store::kKeepsRows) {
      if (segment_lane() != 0) return;
      const auto kept = ptx::global(static_cast<uint8_t*>(params.kept_output));
      ptx::store_bulk(ptx::as<Bytes16>(kept + slot * kRowBytes), Rows::row(row), kRowBytes);
    }
  }

 private:
  MOEJIT_DEVICE static void store_zeros(const RowChainParams& params, int32_t place) {
    const auto output = ptx::global(static_cast<uint8_t*>(params.output));
    const auto row = ptx::as<Bytes16>(output + place * int64_t{kRowBytes});
    for (int32_t i = 0; i < kRowBytes / 16; ++i) ptx::store_streaming(row + i, Bytes16{});
  }
};

}  // namespace moejit::device
