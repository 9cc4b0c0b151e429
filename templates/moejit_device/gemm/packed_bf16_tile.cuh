// SPDX-License-Identifier: Apache-2.0
#pragma once

// Swapped tiles whose B has 4-bit codes in memory. Math warps make bf16 of them, which WGMMA takes
// from registers as its m side. A is bf16.
//
// A packed tile has 128 rows of B and 64 of the contraction, kPackedBf16TileBytes that lie in one
// piece in memory:
//
//   words   [2 halves of 64 rows][128 threads][4]: eight codes each, as the threads of a warpgroup
//           take them (PTX ISA, "Register Fragments for wgmma.mma_async.m64k16"). A thread's row is
//           16 * warp + lane / 4. Words 0 and 2 are of this row, 1 and 3 of the row 8 further on.
//           Words 0 and 1 have columns 0 to 31 of the tile, 2 and 3 the others.
//   scales  [128 rows]: four bytes of what a row's codes are multiplied with
//
// A word has four pairs of neighbors of its 32 columns: from column 2 * (lane % 4) on, and 8, 16
// and 24 further on. In which bits a format has them is said where it is decoded: where a shift and
// a mask put both codes of a pair into the halves of a word.

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/params/packed_bf16_tile.h"
#include "moejit_device/ptx/bf16.cuh"
#include "moejit_device/ptx/bytes.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

template <typename Problem>
struct MultiplyPackedBf16 : MultiplyBf16<ptx::Major::kK, ptx::Major::kK> {
  static constexpr bool kIsPackedB = true;
  static constexpr int32_t kTileLines = kPackedBf16TileBytes / 128;
  static constexpr int32_t kSectionTiles = ceil_div(Problem::kSectionN, 128);

  // Returns the first line of 128 bytes of the packed tile of a step.
  MOEJIT_DEVICE static int32_t line(const GemmTile& tile, int32_t step) {
    const int32_t section = tile.group * Problem::kSections + tile.section;
    const int32_t row_tile = section * kSectionTiles + tile.column / 128;
    return (row_tile * Problem::kSteps + step) * kTileLines;
  }
};

// What a thread has of a packed tile: words of its two rows, and their scales.
struct PackedCodes {
  Bytes16 words;
  uint32_t scales[2];
};

// A thread's rows of packed tiles.
template <typename Stages>
class PackedBf16Rows {
 public:
  MOEJIT_DEVICE explicit PackedBf16Rows(const WarpgroupPart& part) {
    const int32_t thread = ptx::thread_index() % ptx::kWarpgroupThreads;
    words_ = part.column / 64 * ptx::kWarpgroupThreads + thread;
    scales_ = kPackedBf16CodeBytes / 4 + part.column + thread / 32 * 16 + ptx::lane_index() / 4;
  }

  MOEJIT_DEVICE PackedCodes load(int32_t stage) const {
    const auto tile = Stages::b(stage);
    const auto scales = ptx::as<uint32_t>(tile) + scales_;
    return {.words = ptx::load(tile + words_),
            .scales = {ptx::load(scales), ptx::load(scales + 8)}};
  }

 private:
  int32_t words_;   // in 16 bytes
  int32_t scales_;  // in 4 bytes
};

}  // namespace moejit::device
