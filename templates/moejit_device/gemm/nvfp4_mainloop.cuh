// SPDX-License-Identifier: Apache-2.0
#pragma once

// NVFP4: E2M1 codes, with an E4M3 scale for 16 of a row, below a factor of the whole matrix in
// fp32. A code has two significant bits and a scale four, so their product is a bf16 number.
// Nothing is rounded but the sums: one chain over all of the contraction, which the epilogue
// multiplies with the factor (SectionFactors).
//
// Magnitudes m of E2M1, in the bits 6 to 8 of a bf16, are numbers 2^126 times smaller, subnormal
// ones included. A product with a scale in bf16 puts that right. Scales are in the tile with five
// bits of exponent and three of mantissa, without a sign: 1.m * 2^(e - 10), and 0 for the scale 0,
// whose codes are zeros. In bf16 their exponents are 236 more. So they are 2^119 times larger, and
// the largest, 448, has room. What is missing, 2^7 or kNvfp4CodeFactor, is put into the factor.
//
// A word's pairs, as bits of each half: magnitude, lowest bit first, and sign.
//   0   0, 1, 2      9
//   1   4, 5, 6      13
//   2   10, 11, 12   3 of the other half
//   3   14, 7, 8     15

#include "moejit_device/gemm/no_scales.cuh"
#include "moejit_device/gemm/packed_bf16_tile.cuh"

namespace moejit::device {

struct Nvfp4Codes {
  // Returns the values of a thread's codes, 1 / kNvfp4CodeFactor of them.
  MOEJIT_DEVICE static ptx::RowFragments decode(const PackedCodes& codes) {
    constexpr uint32_t kPair = 0x81c081c0u;  // sign and magnitude of either half
    ptx::RowFragments m;
#pragma unroll
    for (int32_t half = 0; half < 2; ++half) {
#pragma unroll
      for (int32_t i = 0; i < 2; ++i) {
        const uint32_t word = codes.words.word[2 * i + half];
        const uint32_t first = scale_pair(codes.scales[half], 2 * i);
        const uint32_t second = scale_pair(codes.scales[half], 2 * i + 1);
        m.word[2 * i][half] = ptx::multiply_bf16_pairs(word << 6 & kPair, first);
        m.word[2 * i][2 + half] = ptx::multiply_bf16_pairs(word << 2 & kPair, first);
        m.word[2 * i + 1][half] =
            ptx::multiply_bf16_pairs((word >> 4 | word << 28) & kPair, second);
        m.word[2 * i + 1][2 + half] =
            ptx::multiply_bf16_pairs((word & 0x81808180u) | (word >> 8 & 0x00400040u), second);
      }
    }
    return m;
  }

 private:
  // Returns byte `group` of four scales as bf16, 2^119 times larger, in both halves.
  MOEJIT_DEVICE static uint32_t scale_pair(uint32_t scales, int32_t group) {
    constexpr uint32_t kExponent = 236u << 7;
    const auto byte = static_cast<uint32_t>(group);
    return ptx::select_bytes(scales, 0, 0x4040u + 0x0101u * byte) * 16u + kExponent * 0x00010001u;
  }
};

// A step's codes are decoded while the products of the step before run.
template <typename Multiply>
class Nvfp4Mainloop {
 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, 1 or more, to sums that are 0. All threads of a math
  // warpgroup; sums [kW / 2] in the order of ptx::WgmmaSum.
  template <int32_t kW, int32_t, typename Stages>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const NoScales&,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    const PackedBf16Rows<Stages> rows(part);
    ptx::WgmmaSum<kW> total;
    reader.wait();
    ptx::RowFragments even = Nvfp4Codes::decode(rows.load(reader.position.stage));
    ptx::wgmma_fence(total, even);
    int32_t before = multiply(even, false, reader, total);
    int32_t left = k_steps - 1;
#pragma unroll 1
    for (; left >= 2; left -= 2) {
      ptx::RowFragments odd = next(rows, reader);
      int32_t stage = multiply(odd, true, reader, total);
      ptx::wgmma_wait<1>(even);
      reader.release(before);
      before = stage;
      even = next(rows, reader);
      stage = multiply(even, true, reader, total);
      ptx::wgmma_wait<1>(odd);
      reader.release(before);
      before = stage;
    }
    if (left > 0) {
      ptx::RowFragments odd = next(rows, reader);
      const int32_t stage = multiply(odd, true, reader, total);
      ptx::wgmma_wait<0>(total, even, odd);
      reader.release(before);
      before = stage;
    } else {
      ptx::wgmma_wait<0>(total, even);
    }
    reader.release(before);
#pragma unroll
    for (int32_t i = 0; i < kW / 2; ++i) sums[i] = total(i);
  }

 private:
  // Returns the next step's values, and fences them.
  template <typename Stages>
  MOEJIT_DEVICE static ptx::RowFragments next(const PackedBf16Rows<Stages>& rows,
                                              const StageReader<Stages>& reader) {
    reader.wait();
    ptx::RowFragments m = Nvfp4Codes::decode(rows.load(reader.position.stage));
    ptx::wgmma_fence(m);
    return m;
  }

  // Starts a step's products, and returns its stage.
  template <typename Stages, int32_t kW>
  MOEJIT_DEVICE static int32_t multiply(const ptx::RowFragments& m, bool accumulate,
                                        StageReader<Stages>& reader, ptx::WgmmaSum<kW>& sum) {
    const int32_t stage = reader.position.stage;
    const auto n = ptx::matrix_descriptor(Stages::a(0)) + stage * Stages::kStageBytes;
    ptx::wgmma_rows_bf16(sum, m, n, accumulate);
    ptx::wgmma_commit();
    ptx::sync_warp();  // all lanes have read the words
    reader.position.advance();
    return stage;
  }
};

}  // namespace moejit::device
