// SPDX-License-Identifier: Apache-2.0
#pragma once

// 4-bit weights of checkpoints to packed tiles whose codes become bf16 (gemm/packed_bf16_tile.cuh):
// codes change their places, and no value changes. A CTA makes a tile of 128 rows by 64 columns, a
// thread 32 columns of a row.
//
// Codes say what a format has in words and in the scales of rows:
//
//   kGroup                                a row has a multiple of so many columns
//   word(pairs)                           eight codes as a word has them; a pair is a byte
//   take_scales<kColumns>(params, row,    sets the two bytes of a part's scales, and may change its
//                         column, part)   codes; false if a scale is not what the format takes
//
// Emitted kernels look like this:
//
//   #include "moejit_device/cast/weight_pack_nvfp4.cuh"
//
//   using namespace moejit::device;
//
//   constexpr int32_t kSections = 2;
//   constexpr int32_t kSectionRows = 768;
//   constexpr int32_t kColumns = 2048;
//   constexpr bool kInterleaved = false;
//
//   using Kernel = WeightPackBf16<PackNvfp4, kSections, kSectionRows, kColumns, kInterleaved>;
//
//   MOEJIT_KERNEL(Kernel::kThreads, Kernel::kCtasPerSm, moejit_pack_..., WeightPackBf16Params) {
//     Kernel::run(params);
//   }

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/packed_bf16_tile.h"
#include "moejit_device/params/status_bits.h"
#include "moejit_device/params/weight_pack_bf16_params.h"
#include "moejit_device/ptx/barrier.cuh"
#include "moejit_device/ptx/bytes.cuh"
#include "moejit_device/ptx/memory.cuh"

namespace moejit::device {

// 32 columns of a row: two words of eight codes for each 16, the first code in the lowest bits, and
// two of the four bytes of scales in the lowest bits.
struct PackedPart {
  uint32_t words[4];
  uint32_t scales;
};

template <typename Codes, int32_t kSections, int32_t kSectionRows, int32_t kColumns,
          bool kInterleaved>
struct WeightPackBf16 {
  static_assert(kColumns % Codes::kGroup == 0, "rows are whole groups");
  static_assert(kSections == 2 || !kInterleaved, "rows alternate between two sections");

  static constexpr int32_t kThreads = 256;
  static constexpr int32_t kCtasPerSm = 4;
  static constexpr int32_t kSharedBytes = kPackedBf16TileBytes;

  // A CTA for each tile.
  MOEJIT_DEVICE static void run(const WeightPackBf16Params& params) {
    const int32_t row = ptx::thread_index() / 2, half = ptx::thread_index() % 2;
    PackedPart part{};
    const int32_t column = ptx::cta_index() % kTileColumns * 64 + half * 32;
    const int64_t matrix_row = row_of(row);
    bool is_good = true;
    if (matrix_row >= 0) {
      fetch(params, matrix_row, column, part);
      is_good = Codes::template take_scales<kColumns>(params, matrix_row, column, part);
    }
    if (!is_good) ptx::atomic_or(ptx::global(params.status), kStatusBadScale);
    place(row, half, part);
    ptx::sync_cta();  // the tile is complete
    copy_out(params);
  }

 private:
  static constexpr int32_t kTileColumns = ceil_div(kColumns, int32_t{64});
  static constexpr int32_t kSectionTiles = ceil_div(kSectionRows, int32_t{128});
  static constexpr int32_t kMatrixTiles = kSections * kSectionTiles * kTileColumns;

  // Returns the row of all matrices that is row `row` of the CTA's tile; -1 beyond the section.
  MOEJIT_DEVICE static int64_t row_of(int32_t row) {
    const int32_t matrix = ptx::cta_index() / kMatrixTiles;
    const int32_t tile = ptx::cta_index() % kMatrixTiles;
    const int32_t section = tile / kTileColumns / kSectionTiles;
    const int32_t section_row = tile / kTileColumns % kSectionTiles * 128 + row;
    if (section_row >= kSectionRows) return -1;
    return int64_t{matrix} * (kSections * kSectionRows) +
           (kInterleaved ? 2 * section_row + section : section * kSectionRows + section_row);
  }

  // Loads codes, 16 columns at once: a row may end within the part.
  MOEJIT_DEVICE static void fetch(const WeightPackBf16Params& params, int64_t row, int32_t column,
                                  PackedPart& part) {
    const auto codes = ptx::as<const Bytes8>(ptx::global(params.input)) + row * (kColumns / 16);
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      if (column + 16 * i >= kColumns) continue;
      const Bytes8 group = ptx::load_streaming(codes + (column / 16 + i));
      part.words[2 * i] = group.word[0];
      part.words[2 * i + 1] = group.word[1];
    }
  }

  // Puts a part into the tile in shared memory: a word for each of four lanes, which have byte
  // `lane` of each of its words.
  MOEJIT_DEVICE static void place(int32_t row, int32_t half, const PackedPart& part) {
    const auto words = ptx::shared<uint32_t>(0) +
                       4 * (row / 64 * 128 + row % 64 / 16 * 32 + row % 8 * 4) +
                       (2 * half + row / 8 % 2);
#pragma unroll
    for (int32_t lane = 0; lane < 4; ++lane) {
      uint32_t pairs[4];
#pragma unroll
      for (int32_t i = 0; i < 4; ++i) pairs[i] = part.words[i] >> (8 * lane) & 0xffu;
      ptx::store(words + 4 * lane, Codes::word(pairs));
    }
    const auto scales = ptx::shared<uint16_t>(kPackedBf16CodeBytes) + (2 * row + half);
    ptx::store(scales, static_cast<uint16_t>(part.scales));
  }

  MOEJIT_DEVICE static void copy_out(const WeightPackBf16Params& params) {
    constexpr int32_t kChunks = kPackedBf16TileBytes / 16;
    const auto tile =
        ptx::as<Bytes16>(ptx::global(params.output)) + int64_t{ptx::cta_index()} * int64_t{kChunks};
    for (int32_t i = ptx::thread_index(); i < kChunks; i += kThreads)
      ptx::store_streaming(tile + i, ptx::load(ptx::shared<Bytes16>(0) + i));
  }
};

}  // namespace moejit::device
