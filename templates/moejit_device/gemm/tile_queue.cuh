// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tiles on their way from the warp that walks over the groups to those that copy and multiply, each
// of which takes all of them. The walk is several tiles ahead, so its latency is nobody's.

#include "moejit_device/gemm/tile.cuh"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/mbarrier.cuh"

namespace moejit::device {

template <int32_t kReaderWarps, uint32_t kFirstByte>
class TileQueue {
  static constexpr int32_t kSlots = 4;
  static constexpr uint32_t kBarriers = kFirstByte + kSlots * sizeof(GemmTile);
  static_assert(kFirstByte % 16 == 0, "tiles are accessed 16 bytes at a time");

 public:
  static constexpr uint32_t kEnd = kBarriers + 2 * 8 * kSlots;

  // Initializes the barriers, by one thread; a fence and a CTA barrier follow.
  MOEJIT_DEVICE static void init() {
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      ptx::init_mbarrier(full(slot), 1);
      ptx::init_mbarrier(empty(slot), kReaderWarps);
    }
  }

  // Puts a tile into the queue. Called by one thread of the warp that walks.
  MOEJIT_DEVICE void put(const GemmTile& tile) {
    ptx::wait(empty(slot_), parity_ ^ 1);
    const auto to = place(slot_);
    ptx::store(to, words(tile.group, tile.a_row, tile.b_row, tile.k_begin));
    ptx::store(to + 1, words(tile.k_steps, tile.d_row, tile.rows, tile.padded_rows));
    ptx::store(to + 2, words(tile.section, tile.column, tile.b_matrix, tile.d_matrix));
    ptx::arrive(full(slot_));
    advance();
  }

  // Returns the tile that is due. Called by all lanes of a reading warp. The tile stays until pop()
  // and can be read again.
  MOEJIT_DEVICE GemmTile front() const {
    ptx::wait(full(slot_), parity_);
    return read(slot_);
  }
  // Returns the tile after front().
  MOEJIT_DEVICE GemmTile following() const {
    const bool wraps = slot_ + 1 == kSlots;
    const int32_t slot = wraps ? 0 : slot_ + 1;
    ptx::wait(full(slot), wraps ? parity_ ^ 1 : parity_);
    return read(slot);
  }
  // All lanes of a reading warp, when nothing of front() is needed any more.
  MOEJIT_DEVICE void pop() {
    ptx::sync_warp();  // all lanes have read it
    if (ptx::lane_index() == 0) ptx::arrive(empty(slot_));
    advance();
  }

 private:
  MOEJIT_DEVICE static ptx::SharedPtr<Bytes16> place(int32_t slot) {
    return ptx::shared<Bytes16>(kFirstByte) + slot * static_cast<int32_t>(sizeof(GemmTile) / 16);
  }
  MOEJIT_DEVICE static GemmTile read(int32_t slot) {
    const auto from = place(slot);
    const Bytes16 first = ptx::load(from);
    const Bytes16 second = ptx::load(from + 1);
    const Bytes16 third = ptx::load(from + 2);
    return {.group = integer(first.word[0]),
            .a_row = integer(first.word[1]),
            .b_row = integer(first.word[2]),
            .k_begin = integer(first.word[3]),
            .k_steps = integer(second.word[0]),
            .d_row = integer(second.word[1]),
            .rows = integer(second.word[2]),
            .padded_rows = integer(second.word[3]),
            .section = integer(third.word[0]),
            .column = integer(third.word[1]),
            .b_matrix = integer(third.word[2]),
            .d_matrix = integer(third.word[3])};
  }
  MOEJIT_DEVICE static ptx::Mbarrier full(int32_t slot) {
    return ptx::shared<uint64_t>(kBarriers) + slot;
  }
  MOEJIT_DEVICE static ptx::Mbarrier empty(int32_t slot) {
    return ptx::shared<uint64_t>(kBarriers) + (kSlots + slot);
  }
  MOEJIT_DEVICE static Bytes16 words(int32_t a, int32_t b, int32_t c, int32_t d) {
    return {{static_cast<uint32_t>(a), static_cast<uint32_t>(b), static_cast<uint32_t>(c),
             static_cast<uint32_t>(d)}};
  }
  MOEJIT_DEVICE static int32_t integer(uint32_t word) { return static_cast<int32_t>(word); }
  MOEJIT_DEVICE void advance() {
    if (++slot_ == kSlots) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }

  int32_t slot_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace moejit::device
