// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the rows of a tile come from. A warp has 64 rows. fetch_scales() gives lane l the scales of
// the rows 2l and 2l + 1; fetch_block() gives a lane 16 bytes from each of the 16 rows of its
// group.
//
//   RowsInOrder     they lie side by side
//   GatheredRows    each is the row of its token, which row_tokens names; rows that were permuted
//                   as zeros, whose tokens it gives as ~token, are zeros here too
//   GatheredRowsOfAll  as GatheredRows, but no row is made zeros
//
// A row has kColumns bytes: of bf16 two for each column. Such rows have no scales to fetch.
//
// kBandTiles is how many tiles side by side are moved before the tiles of the next rows. Rows in
// order are read once, best from end to end. A gathered row is read by every expert of its token.
// In a narrow band, half a KiB of each row, the parts of all tokens stay in L2 until the last
// expert has read them.

#include "moejit_device/transpose/byte_block.cuh"
#include "moejit_device/transpose/row_shifts.cuh"

namespace moejit::device {

template <int32_t kColumns>
struct RowsInOrder {
  static constexpr int32_t kBlocks = ceil_div(kColumns, int32_t{128});
  static constexpr int32_t kBandTiles = kBlocks;

  // `count` is the rows of this warp from `first` on.
  MOEJIT_DEVICE RowsInOrder(const TransposeParams&, int64_t first, int32_t count)
      : first_(first), count_(count) {}

  MOEJIT_DEVICE RowScalePair fetch_scales(const TransposeParams& params, int32_t block) const {
    const int32_t row = 2 * ptx::lane_index();
    const auto scales = ptx::as<const uint32_t>(ptx::global(params.input_scale_inv)) +
                        ((first_ + row) * kBlocks + block);
    return {{row < count_ ? ptx::load(scales) : 0u,
             row + 1 < count_ ? ptx::load(scales + kBlocks) : 0u}};
  }
  MOEJIT_DEVICE ByteBlock fetch_block(const TransposeParams& params, int32_t column,
                                      bool has_column) const {
    const int32_t row = block_row();
    return device::fetch_block<kColumns>(
        ptx::global(params.input) + ((first_ + row) * kColumns + column),
        has_column ? count_ - row : 0);
  }

 private:
  int64_t first_;
  int32_t count_;
};

template <int32_t kColumns, bool kZeroes>
class GatheredRowsOf {
  static constexpr int32_t kBlocks = ceil_div(kColumns, int32_t{128});
  static constexpr int32_t kNone = -0x7fffffff - 1;  // there is no such row

 public:
  static constexpr int32_t kBandTiles = 4;

  MOEJIT_DEVICE GatheredRowsOf(const TransposeParams& params, int64_t first, int32_t count) {
    const auto tokens = ptx::global(params.row_tokens) + first;
    const int32_t row = 2 * ptx::lane_index();
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      token_[i] = row + i < count ? ptx::load(tokens + (row + i)) : kNone;
    }
  }

  MOEJIT_DEVICE RowScalePair fetch_scales(const TransposeParams& params, int32_t block) const {
    const auto scales = ptx::as<const uint32_t>(ptx::global(params.input_scale_inv)) + block;
    RowScalePair pair;
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      const int64_t token = token_[i] < 0 ? ~token_[i] : token_[i];
      pair.bits[i] = token_[i] != kNone ? ptx::load(scales + token * kBlocks) : 0u;
    }
    return pair;
  }
  MOEJIT_DEVICE ByteBlock fetch_block(const TransposeParams& params, int32_t column,
                                      bool has_column) const {
    const auto source = ptx::global(params.input) + column;
    ByteBlock block;
#pragma unroll
    for (int32_t i = 0; i < kBlockBytes; ++i) {
      int32_t token = shuffle_in_row_group(token_[i % 2], i / 2);
      if (!kZeroes && token < 0 && token != kNone) token = ~token;
      const auto run = ptx::as<const Bytes16>(source + int64_t{token} * kColumns);
      block.row[i] = has_column && token >= 0 ? ptx::load(run) : Bytes16{};
    }
    return block;
  }

 private:
  int32_t token_[2];  // of the rows 2l and 2l + 1
};

template <int32_t kColumns>
using GatheredRows = GatheredRowsOf<kColumns, true>;
template <int32_t kColumns>
using GatheredRowsOfAll = GatheredRowsOf<kColumns, false>;

}  // namespace moejit::device
