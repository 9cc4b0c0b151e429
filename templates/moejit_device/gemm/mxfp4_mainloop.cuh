// SPDX-License-Identifier: Apache-2.0
#pragma once

// Swapped tiles whose B is MXFP4 and stays so in memory: E2M1 codes, and a scale for 32 of them
// (OCP Microscaling Formats v1.0, section 5.3). WGMMA takes its m side from registers as well as
// from shared memory, so math warps make e4m3 codes on the way.
//
// An E2M1 value times 2^k is an e4m3 number for k from -8 to 6. A 128x128 block of B has a scale,
// and each group of 32 its k beside that. So results have the bits of e4m3 codes with the same
// values and the same scale.
//
// A packed tile has 128 rows of B and 128 of the contraction, kPackedTileBytes that lie in one
// piece in memory: the words of the first 64 rows, then of the others, as the threads of a
// warpgroup take them, then the k of each row's groups.
//
//   words   [2 warpgroups][2 row halves][128 threads][4 groups]: eight codes of one row and group,
//           a thread's part of the fragment of A (PTX ISA, "Register Fragments for
//           wgmma.mma_async.m64k32"): four from column 4 * (lane % 4) of the group on, four from
//           16 columns further on. The thread's row is 16 * warp + lane / 4, in the second half
//           8 further on.
//   groups  [128 rows][4 groups]: k + 8, a byte
//
// The magnitude of code j of a word is in bits 4j to 4j + 2. Bit 8i + 7 is the sign of code i, bit
// 8i + 3 the sign of code i + 4: both are where e4m3 bytes want them after one shift.

#include "moejit_device/gemm/mainloop.cuh"
#include "moejit_device/params/packed_tile.h"
#include "moejit_device/ptx/bytes.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

// A is e4m3, B packed.
template <typename Problem>
struct MultiplyMxfp4 : MultiplyE4m3 {
  static constexpr bool kIsPackedB = true;
  static constexpr int32_t kTileLines = kPackedTileBytes / 128;
  static constexpr int32_t kSectionTiles = ceil_div(Problem::kSectionN, 128);

  // Returns the first line of 128 bytes of the packed tile of a step.
  MOEJIT_DEVICE static int32_t line(const GemmTile& tile, int32_t step) {
    const int32_t section = tile.group * Problem::kSections + tile.section;
    const int32_t row_tile = section * kSectionTiles + tile.column / 128;
    return (row_tile * Problem::kSteps + step) * kTileLines;
  }
};

// Makes e4m3 codes. All lanes of a warp have it together: lane s has the codes of 0, 0.5, 1, 1.5
// and of 2, 3, 4, 6, lowest byte first, times 2^(s - 8).
class Mxfp4Decoder {
 public:
  MOEJIT_DEVICE Mxfp4Decoder() {
    // A power of two more is 8 more, as long as the numbers are normal.
    const int32_t k = ptx::lane_index() - 8;
    low_ = 0x3c383000u + static_cast<uint32_t>(k) * 0x08080800u;
    high_ = 0x4c484440u + static_cast<uint32_t>(k) * 0x08080808u;
    // Below 2^-6 they are multiples of 2^-9.
    if (k == -6) low_ = 0x0c080400u, high_ = 0x1c181410u;
    if (k == -7) low_ = 0x06040200u, high_ = 0x14100c08u;
    if (k == -8) low_ = 0x03020100u, high_ = 0x0c080604u;
  }

  // Puts the codes of a word into `first` (codes 0 to 3) and `second`. `shift` is k + 8 of its
  // group. All lanes of a warp.
  MOEJIT_DEVICE void decode(uint32_t word, uint32_t shift, uint32_t& first,
                            uint32_t& second) const {
    const auto lane = static_cast<int32_t>(shift);
    const uint32_t low = ptx::shuffle(low_, lane);
    const uint32_t high = ptx::shuffle(high_, lane);
    const uint32_t magnitudes = word & 0x77777777u;
    first = ptx::select_bytes(low, high, magnitudes) | (word & 0x80808080u);
    second = ptx::select_bytes(low, high, magnitudes >> 16) | ((word << 4) & 0x80808080u);
  }

 private:
  uint32_t low_;
  uint32_t high_;
};

// Promotes after every step, as PromotingMainloop does.
template <typename Multiply>
class Mxfp4Mainloop {
 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more. All threads of a math warpgroup; sums [kW / 2]
  // in the order of ptx::WgmmaSum.
  template <int32_t kW, int32_t, typename Stages, typename Scales>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const Scales& scales,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    const Mxfp4Decoder decoder;
    const auto n = ptx::matrix_descriptor(Stages::a(0));
    const PackedRows rows(part);
#pragma unroll 2
    for (int32_t left = k_steps; left > 0; --left) {
      ptx::WgmmaSum<kW> partial;
      const int32_t stage = reader.position.stage;
      reader.wait();
      ptx::RowFragments m = rows.template decode<Stages>(decoder, stage);
      const auto factors = scales.template factors<kW, Stages>(stage);
      ptx::wgmma_fence(partial);
      ptx::wgmma_rows_e4m3(partial, m, n + stage * Stages::kStageBytes, false);
      ptx::wgmma_commit();
      ptx::sync_warp();  // all lanes have read the factors and the words
      ptx::wgmma_wait<0>(partial, m);
      reader.release(stage);
      reader.position.advance();
      Scales::template promote<kW>(partial, factors, sums);
    }
  }

 private:
  // A thread's rows of packed tiles.
  class PackedRows {
   public:
    MOEJIT_DEVICE explicit PackedRows(const WarpgroupPart& part) {
      const int32_t thread = ptx::thread_index() % ptx::kWarpgroupThreads;
      words_ = part.column / 64 * 2 * ptx::kWarpgroupThreads + thread;
      shifts_ = kPackedCodeBytes / 4 + part.column + thread / 32 * 16 + ptx::lane_index() / 4;
    }

    template <typename Stages>
    MOEJIT_DEVICE ptx::RowFragments decode(const Mxfp4Decoder& decoder, int32_t stage) const {
      const auto words = Stages::b(stage) + words_;
      const auto shifts = ptx::as<uint32_t>(Stages::b(stage)) + shifts_;
      const Bytes16 upper = ptx::load(words);
      const Bytes16 lower = ptx::load(words + ptx::kWarpgroupThreads);
      const uint32_t upper_shifts = ptx::load(shifts);
      const uint32_t lower_shifts = ptx::load(shifts + 8);
      ptx::RowFragments m;
#pragma unroll
      for (int32_t g = 0; g < 4; ++g) {
        decoder.decode(upper.word[g], upper_shifts >> (8 * g) & 0xffu, m.word[g][0], m.word[g][2]);
        decoder.decode(lower.word[g], lower_shifts >> (8 * g) & 0xffu, m.word[g][1], m.word[g][3]);
      }
      return m;
    }

   private:
    int32_t words_;   // in 16 bytes
    int32_t shifts_;  // in 4 bytes
  };
};

}  // namespace moejit::device
