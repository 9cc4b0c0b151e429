// SPDX-License-Identifier: Apache-2.0
#pragma once

// Casts bf16 rows to E2M1 with scales on two levels (core/e2m1.cuh): of 16 columns of a row, of 16
// rows of a column, both from one read, or of tiles of 16x16. Rows belong to groups, and blocks of
// 16 rows restart at each group; or they belong to matrices that follow each other. The scale of a
// group or matrix is known before. Stores codes with their scales, or in bf16 the values that codes
// and scales of blocks give. A GEMM then multiplies complete sums by the missing scale.
//
// Memory-bound: a warp holds 16 rows of 128 columns, each lane 16 rows of 8 bytes, which it fetches
// with 16 loads that are all in flight at once. Nothing goes through shared memory.
//
// Emitted kernels look like this:
//
//   #include "moejit_device/cast/two_level_cast.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kGroups = 8;  // 0: rows of matrices
//   constexpr int32_t kMatrixRows = 0;
//   constexpr int32_t kColumns = 7168;
//   constexpr bool kCastsRows = true;
//   constexpr bool kCastsColumns = true;
//   constexpr int32_t kThreads = 128;
//
//   using Kernel = TwoLevelCast<kGroups, kMatrixRows, kColumns, StripesInOrder<kColumns>,
//                               ScalesOfLines, StoreTwoLevelCodes, kCastsRows, kCastsColumns,
//                               kThreads>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_quantize_..., TwoLevelCastParams) {
//     Kernel::run(params);
//   }

#include "moejit_device/cast/row_block_cast.cuh"
#include "moejit_device/cast/stripe_scales.cuh"
#include "moejit_device/params/two_level_cast_params.h"

namespace moejit::device {

// Returns the codes of 4 values of a row, each multiplied by its scale, in the four lowest digits.
MOEJIT_DEVICE uint32_t e2m1_codes(const Bytes8& values, const FourScales& scales) {
  const float value[4] = {
      ptx::float_from_bf16_low(values.word[0]), ptx::float_from_bf16_high(values.word[0]),
      ptx::float_from_bf16_low(values.word[1]), ptx::float_from_bf16_high(values.word[1])};
  uint32_t codes = 0;
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) {
    codes |= e2m1_code(ptx::multiply(value[i], scales.of[i].scale)) << (4 * i);
  }
  return codes;
}

// Returns the values of such codes times the values of their scales' bytes, in bf16; exact.
MOEJIT_DEVICE Bytes8 e2m1_values(uint32_t codes, const FourScales& scales) {
  float value[4];
#pragma unroll
  for (int32_t i = 0; i < 4; ++i) {
    value[i] = ptx::multiply(e2m1_value((codes >> (4 * i)) & 0xfu), e4m3_value(scales.of[i].byte));
  }
  return {{ptx::bf16_pair(value[0], value[1]), ptx::bf16_pair(value[2], value[3])}};
}

// Where a stripe's columns lie in transposed outputs: row `row` of [columns, pitch].
struct ColumnPlace {
  int64_t column;  // the lane's first column, counted over all matrices
  int64_t row;     // a multiple of 16
  int64_t pitch;
};

// Stores codes and scales. Those by columns are transposed, 8 bytes of a column at a time.
struct StoreTwoLevelCodes {
  static constexpr bool kHasScales = true;

  MOEJIT_DEVICE static void store_row(uint8_t* matrix, int64_t offset, uint32_t codes,
                                      const FourScales&) {
    ptx::store(ptx::as<uint16_t>(ptx::global(matrix) + offset / 2), static_cast<uint16_t>(codes));
  }
  template <int32_t kColumns>
  MOEJIT_DEVICE static void store_columns(const TwoLevelCastParams& params,
                                          const uint32_t (&codes)[kStripeRows],
                                          const FourScales& scales, const ColumnPlace& place,
                                          int64_t, int32_t) {
#pragma unroll
    for (int32_t c = 0; c < 4; ++c) {
      Bytes8 column = {};
#pragma unroll
      for (int32_t i = 0; i < kStripeRows; ++i) {
        column.word[i / 8] |= ((codes[i] >> (4 * c)) & 0xfu) << (4 * (i % 8));
      }
      const int64_t at = (place.column + c) * place.pitch + place.row;
      ptx::store(ptx::as<Bytes8>(ptx::global(params.output_colwise) + at / 2), column);
      ptx::store(ptx::global(params.output_colwise_scale_inv) + at / kStripeRows,
                 static_cast<uint8_t>(scales.of[c].byte));
    }
  }
};

// Stores values where the rows lie, by columns too.
struct StoreTwoLevelValues {
  static constexpr bool kHasScales = false;

  MOEJIT_DEVICE static void store_row(uint8_t* matrix, int64_t offset, uint32_t codes,
                                      const FourScales& scales) {
    ptx::store(ptx::as<Bytes8>(ptx::global(matrix) + 2 * offset), e2m1_values(codes, scales));
  }
  template <int32_t kColumns>
  MOEJIT_DEVICE static void store_columns(const TwoLevelCastParams& params,
                                          const uint32_t (&codes)[kStripeRows],
                                          const FourScales& scales, const ColumnPlace&,
                                          int64_t offset, int32_t stored) {
#pragma unroll
    for (int32_t i = 0; i < kStripeRows; ++i) {
      if (i < stored) store_row(params.output_colwise, offset + i * kColumns, codes[i], scales);
    }
  }
};

template <int32_t kGroups, int32_t kMatrixRows, int32_t kColumns_, typename Source_,
          typename Scales, typename Store, bool kCastsRows, bool kCastsColumns, int32_t kThreads_>
struct TwoLevelCast {
  static constexpr int32_t kRows = kStripeRows, kColumns = kColumns_;
  static constexpr int32_t kMoreBlocks = 0;
  static constexpr bool kWalks = kMatrixRows > 0;
  using Source = Source_;
  static_assert(kColumns > 0 && kColumns % 16 == 0, "no group of columns lies in two rows");
  static_assert(kMatrixRows % kStripeRows == 0, "no group of rows lies in two matrices");
  static_assert(kThreads_ % 32 == 0, "whole warps");
  static_assert(kCastsRows || kCastsColumns, "there is something to store");

  static constexpr int32_t kThreads = kThreads_;
  static constexpr int32_t kWarps = kThreads / 32;
  static constexpr int32_t kSharedBytes = 0;
  // For the launch bounds: leaves a thread the registers that its stripe, which takes 32, and its
  // work need. With less, casts by columns spill, and so do both casts.
  static constexpr int32_t kThreadsPerSm = !kCastsColumns       ? 1024
                                           : !kCastsRows        ? 512
                                           : Scales::kAreSquare ? 256
                                                                : 384;
  static constexpr int32_t kCtasPerSm = larger(kThreadsPerSm / kThreads, int32_t{1});

  static constexpr int32_t kTiles = ceil_div(kColumns, kRowBlockColumns);  // of 8 scales of a row
  using Place = TilePlace<kTiles, Source::kBandTiles>;

  MOEJIT_DEVICE static void run(const TwoLevelCastParams& params) {
    cast_blocks<TwoLevelCast>(params);
  }

  MOEJIT_DEVICE static BlockOfGroup find_rows(const TwoLevelCastParams& params, int64_t first) {
    return find_block<kGroups, kRows, kMatrixRows>(params, first);
  }
  MOEJIT_DEVICE static void cast(const TwoLevelCastParams& params, const ValueStripe& stripe,
                                 const BlockOfGroup& rows, const Place& place, int32_t column,
                                 bool has_column) {
    const int64_t first = place.row * kRows;
    const float expert_scale = ptx::load(ptx::global(params.expert_scales) + rows.group);
    const int32_t stored = has_column ? rows.stored : 0;
    const ColumnPlace columns = place_of(params, rows, first, column);
    if constexpr (kCastsRows && kCastsColumns && Scales::kAreSquare) {
      cast_tiles(params, stripe, expert_scale, place, columns, column, stored);
    } else {
      if constexpr (kCastsColumns) {
        cast_columns(params, stripe, expert_scale, columns, first * kColumns + column, stored);
      }
      if constexpr (kCastsRows) cast_rows(params, stripe, expert_scale, place, column, stored);
    }
  }

 private:
  static constexpr int32_t kTileScales = kRowBlockColumns / 16;

  MOEJIT_DEVICE static ColumnPlace place_of(const TwoLevelCastParams& params,
                                            const BlockOfGroup& rows, int64_t first,
                                            int32_t column) {
    if constexpr (kMatrixRows == 0) {
      return {.column = column, .row = first, .pitch = params.pitch};
    } else {
      return {.column = int64_t{rows.group} * kColumns + column,
              .row = first - int64_t{rows.group} * kMatrixRows,
              .pitch = kMatrixRows};
    }
  }

  // All lanes of the warp: those without columns have no rows to store.
  MOEJIT_DEVICE static void cast_columns(const TwoLevelCastParams& params,
                                         const ValueStripe& stripe, float expert_scale,
                                         const ColumnPlace& place, int64_t offset, int32_t stored) {
    const FourScales scales = Scales::of_columns(stripe, expert_scale);
    if (stored == 0) return;
    uint32_t codes[kStripeRows];
#pragma unroll
    for (int32_t i = 0; i < kStripeRows; ++i) codes[i] = e2m1_codes(stripe.row[i], scales);
    Store::template store_columns<kColumns>(params, codes, scales, place, offset, stored);
  }

  // Stores the bytes of scales that this lane has of its group of columns, of rows 4j to 4j + 3.
  // All lanes of the warp: behind the last column scales are 0.
  MOEJIT_DEVICE static void store_row_scales(const TwoLevelCastParams& params,
                                             const FourScales& own, const Place& place,
                                             int32_t stored) {
    const int32_t lane = ptx::lane_index(), rows = ptx::shuffle(stored, 0);
#pragma unroll
    for (int32_t i = 0; i < 4; ++i) {
      const int32_t row = lane % 4 * 4 + i;
      const int64_t at =
          ((place.row * kStripeRows + row) * kTiles + place.column) * kTileScales + lane / 4;
      if (row < rows) {
        ptx::store(ptx::global(params.output_scale_inv) + at, static_cast<uint8_t>(own.of[i].byte));
      }
    }
  }

  // All lanes of the warp: those without columns have no rows to store.
  MOEJIT_DEVICE static void cast_rows(const TwoLevelCastParams& params, const ValueStripe& stripe,
                                      float expert_scale, const Place& place, int32_t column,
                                      int32_t stored) {
    const FourScales own = Scales::of_rows(stripe, expert_scale);
    if constexpr (Store::kHasScales) store_row_scales(params, own, place, stored);
    const int64_t first = place.row * kStripeRows;
#pragma unroll
    for (int32_t i = 0; i < kStripeRows; ++i) {
      const int32_t source = ptx::lane_index() / 4 * 4 + i / 4;
      const TwoLevelScale scale = {.byte = ptx::shuffle(own.of[i % 4].byte, source),
                                   .scale = ptx::shuffle(own.of[i % 4].scale, source)};
      const FourScales scales = {{scale, scale, scale, scale}};
      const uint32_t codes = e2m1_codes(stripe.row[i], scales);
      if (i < stored)
        Store::store_row(params.output, (first + i) * kColumns + column, codes, scales);
    }
  }

  // Casts once for both directions. All lanes of the warp.
  MOEJIT_DEVICE static void cast_tiles(const TwoLevelCastParams& params, const ValueStripe& stripe,
                                       float expert_scale, const Place& place,
                                       const ColumnPlace& columns, int32_t column, int32_t stored) {
    const FourScales scales = Scales::of_columns(stripe, expert_scale);
    if constexpr (Store::kHasScales) store_row_scales(params, scales, place, stored);
    if (stored == 0) return;
    const int64_t offset = place.row * kStripeRows * kColumns + column;
    uint32_t codes[kStripeRows];
#pragma unroll
    for (int32_t i = 0; i < kStripeRows; ++i) {
      codes[i] = e2m1_codes(stripe.row[i], scales);
      if (i < stored) Store::store_row(params.output, offset + i * kColumns, codes[i], scales);
    }
    Store::template store_columns<kColumns>(params, codes, scales, columns, offset, stored);
  }
};

}  // namespace moejit::device
