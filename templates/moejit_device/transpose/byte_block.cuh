// SPDX-License-Identifier: Apache-2.0
#pragma once

// 16 rows of 16 bytes in the registers of one thread: read as 16 bytes of each row, written as 16
// bytes of each column. A block's bytes never go through another thread.

#include "moejit_device/core/byte_transpose.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

inline constexpr int32_t kBlockBytes = 16;  // rows, and bytes of a row

struct ByteBlock {
  Bytes16 row[kBlockBytes];
};

// A warp holds 64 rows of 128 columns: four groups of rows by eight of columns, a block to a lane.
// It touches the same lines of memory whichever lane has which. But 16 bytes of eight lanes that
// follow each other are one access to L1, whose banks are the 128 bytes of a line. In this order
// their rows never meet in a bank, and their columns, which lie 2 KiB apart, two and two; if they
// had the same rows, all eight would.
MOEJIT_DEVICE int32_t row_group_of(int32_t lane) { return (lane ^ (lane / 8)) % 4; }
MOEJIT_DEVICE int32_t column_group_of(int32_t lane) { return lane % 8; }
MOEJIT_DEVICE int32_t block_row() { return row_group_of(ptx::lane_index()) * kBlockBytes; }
MOEJIT_DEVICE int32_t block_column() { return column_group_of(ptx::lane_index()) * kBlockBytes; }

// Returns the value of lane 8g + index, index from 0 to 7, where g is this lane's group of rows:
// what a warp keeps for pairs of rows, lane l for the rows 2l and 2l + 1.
template <typename T>
MOEJIT_DEVICE T shuffle_in_row_group(T value, int32_t index) {
  return ptx::shuffle(value, 8 * row_group_of(ptx::lane_index()) + index);
}

// Fetches the first `rows` rows from `source` on, kPitch bytes from one to the next; zeros below.
template <int32_t kPitch>
MOEJIT_DEVICE ByteBlock fetch_block(ptx::GlobalPtr<const uint8_t> source, int32_t rows) {
  ByteBlock block;
#pragma unroll
  for (int32_t i = 0; i < kBlockBytes; ++i) {
    const auto run = ptx::as<const Bytes16>(source + i * kPitch);
    block.row[i] = i < rows ? ptx::load_streaming(run) : Bytes16{};
  }
  return block;
}

// Bit i: row i holds something else than +0 and -0.
MOEJIT_DEVICE uint32_t nonzero_rows(const ByteBlock& block) {
  uint32_t rows = 0;
#pragma unroll
  for (int32_t i = 0; i < kBlockBytes; ++i) {
    const uint32_t(&word)[4] = block.row[i].word;
    const uint32_t magnitudes = (word[0] | word[1] | word[2] | word[3]) & 0x7f7f7f7fu;
    rows |= magnitudes != 0 ? 1u << i : 0u;
  }
  return rows;
}

// Column i of the block to `target` + 128 * i, four columns at a time.
MOEJIT_DEVICE void store_columns(const ByteBlock& block, ptx::GlobalPtr<uint8_t> target) {
#pragma unroll
  for (int32_t w = 0; w < 4; ++w) {
    Bytes16 run[4];
#pragma unroll
    for (int32_t q = 0; q < 4; ++q) {
      uint32_t column[4] = {block.row[4 * q].word[w], block.row[4 * q + 1].word[w],
                            block.row[4 * q + 2].word[w], block.row[4 * q + 3].word[w]};
      transpose_bytes(column);
#pragma unroll
      for (int32_t c = 0; c < 4; ++c) run[c].word[q] = column[c];
    }
#pragma unroll
    for (int32_t c = 0; c < 4; ++c) {
      ptx::store_streaming(ptx::as<Bytes16>(target + 128 * (4 * w + c)), run[c]);
    }
  }
}

}  // namespace moejit::device
