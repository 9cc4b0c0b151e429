// SPDX-License-Identifier: Apache-2.0
#pragma once

// Casts bf16 rows with E8M0 scales of 32 elements: of 32 columns of a row, of 32 rows of a column,
// or both from one read. Rows belong to groups, and blocks of 32 rows restart at each group; or
// they belong to matrices that follow each other. Stores codes with their scales, or in bf16 the
// values that codes and scales give, for GEMMs that know no such scales.
//
// Memory-bound: a warp holds 32 rows of 128 columns, each lane 32 rows of 8 bytes, which it fetches
// with 32 loads that are all in flight at once. Nothing goes through shared memory; lanes exchange
// the maxima of rows alone.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/cast/block_cast.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kGroups = 8;  // 0: rows of matrices
//   constexpr int32_t kColumns = 7168;
//   constexpr bool kCastsRows = true;
//   constexpr bool kCastsColumns = true;
//   constexpr int32_t kThreads = 128;
//
//   using Kernel = BlockCast<kGroups, kColumns, BlocksInOrder<kColumns>, StoreCodes,
//                            kCastsRows, kCastsColumns, kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_..., BlockCastParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/cast/block_exponents.cuh"
#include "moejit_device/cast/row_block_cast.cuh"
#include "moejit_device/params/block_cast_params.h"

namespace moejit::device {

// Returns the codes of 4 values.
MOEJIT_DEVICE uint32_t quantize_block_row(const Bytes8& values, const float (&scale)[4]) {
  return ptx::e4m3_pair(ptx::multiply(ptx::float_from_bf16_low(values.word[0]), scale[0]),
                        ptx::multiply(ptx::float_from_bf16_high(values.word[0]), scale[1])) |
         (static_cast<uint32_t>(
              ptx::e4m3_pair(ptx::multiply(ptx::float_from_bf16_low(values.word[1]), scale[2]),
                             ptx::multiply(ptx::float_from_bf16_high(values.word[1]), scale[3])))
          << 16);
}

// Store codes and scales, or values, of rows [P, C].
struct StoreCodes {
  static constexpr bool kHasScales = true;
  MOEJIT_DEVICE static void store(uint8_t* matrix, int64_t offset, uint32_t codes,
                                  const float (&)[4]) {
    ptx::store(ptx::as<uint32_t>(ptx::global(matrix) + offset), codes);
  }
};
struct StoreValues {
  static constexpr bool kHasScales = false;
  MOEJIT_DEVICE static void store(uint8_t* matrix, int64_t offset, uint32_t codes,
                                  const float (&scale_inv)[4]) {
    ptx::store(ptx::as<Bytes8>(ptx::global(matrix) + 2 * offset), recover_quad(codes, scale_inv));
  }
};

template <int32_t kGroups, int32_t kColumns_, typename Source_, typename Store, bool kCastsRows,
          bool kCastsColumns, int32_t kThreads_, bool kStartsAnywhere = false>
struct BlockCast {
  static constexpr int32_t kRows = kBlockRows, kColumns = kColumns_;
  static constexpr bool kWalks = kGroups == 0;
  using Source = Source_;
  static_assert(kColumns > 0 && kColumns % 16 == 0, "rows begin at multiples of 16 bytes");
  static_assert(kThreads_ % 32 == 0, "whole warps");
  static_assert(kCastsRows || kCastsColumns, "there is something to store");
  static_assert(!kStartsAnywhere || (kGroups > 0 && !Store::kHasScales), "no scale has a place");
  // At most one block of each group is not full.
  static constexpr int32_t kMoreBlocks = kStartsAnywhere ? kGroups : 0;

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kSharedBytes = 0;
  // For the launch bounds: leaves a thread the registers that its block and its work need. With 128
  // registers both casts spill.
  static constexpr int32_t kThreadsPerSm = kCastsRows && kCastsColumns ? 384 : 512;
  static constexpr int32_t kCtasPerSm = larger(kThreadsPerSm / kThreads, int32_t{1});

  static constexpr int32_t kWords = ceil_div(kColumns, kRowBlockColumns);  // of scales of a row
  using Place = TilePlace<kWords, Source::kBandTiles>;

  MOEJIT_DEVICE static void run(const BlockCastParams& params) { cast_blocks<BlockCast>(params); }

  MOEJIT_DEVICE static BlockOfGroup find_rows(const BlockCastParams& params, int64_t first) {
    if constexpr (kStartsAnywhere)
      return find_block_anywhere<kGroups, kRows>(params, static_cast<int32_t>(first / kRows));
    return find_block<kGroups, kRows, 0>(params, first);
  }
  MOEJIT_DEVICE static void cast(const BlockCastParams& params, const ValueBlock32& block,
                                 const BlockOfGroup& rows, const Place& place, int32_t column,
                                 bool has_column) {
    const int64_t offset = rows.first * kColumns + column;
    if constexpr (kCastsColumns) {
      // With a branch the compiler does not keep what both casts need at once, where warps walk.
      if (kWalks ? column < kColumns : has_column)
        cast_columns(params, block, place.row, offset, rows.stored);
    }
    if constexpr (kCastsRows) cast_rows(params, block, place, offset, has_column ? rows.stored : 0);
  }

 private:
  MOEJIT_DEVICE static void cast_columns(const BlockCastParams& params, const ValueBlock32& block,
                                         int64_t block_row, int64_t offset, int32_t stored) {
    const uint32_t exponents = column_exponents(block);
    float scale[4], scale_inv[4];
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      const BlockScale both = scale_of_e8m0((exponents >> (8 * i)) & 0xffu);
      scale[i] = both.scale;
      scale_inv[i] = both.scale_inv;
    }
    if constexpr (Store::kHasScales) {
      const int64_t column = offset - block_row * kRows * kColumns;
      ptx::store(ptx::as<uint32_t>(ptx::global(params.output_colwise_scale_inv) +
                                   (block_row * kColumns + column)),
                 exponents);
    }
#pragma unroll
    for (int32_t i = 0; i < kRows; ++i) {
      const uint32_t codes = quantize_block_row(block.row[i], scale);
      if (i < stored) Store::store(params.output_colwise, offset + i * kColumns, codes, scale_inv);
    }
  }

  // All lanes of the warp: those without columns have no rows to store.
  MOEJIT_DEVICE static void cast_rows(const BlockCastParams& params, const ValueBlock32& block,
                                      const Place& place, int64_t offset, int32_t stored) {
    const RowExponents exponents = row_exponents(block);
    if constexpr (Store::kHasScales) {
      const uint32_t word = exponents.word();
      const int32_t row = RowExponents::word_row();
      if (row < ptx::shuffle(stored, 0)) {
        const int64_t at = (place.row * kRows + row) * kWords + place.column;
        ptx::store(ptx::as<uint32_t>(ptx::global(params.output_scale_inv)) + at, word);
      }
    }
#pragma unroll
    for (int32_t i = 0; i < kRows; ++i) {
      const uint32_t four = exponents.of_rows(i / 4);
      const BlockScale both = scale_of_e8m0((four >> (i % 4 * 8)) & 0xffu);
      const float scale[4] = {both.scale, both.scale, both.scale, both.scale};
      const float scale_inv[4] = {both.scale_inv, both.scale_inv, both.scale_inv, both.scale_inv};
      const uint32_t codes = quantize_block_row(block.row[i], scale);
      if (i < stored) Store::store(params.output, offset + i * kColumns, codes, scale_inv);
    }
  }
};

}  // namespace moejit::device
