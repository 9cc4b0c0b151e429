// SPDX-License-Identifier: Apache-2.0
#pragma once

// INT4: codes q from 0 to 15, with a scale and a zero point z for 128 of a row. The integer q - z
// is a bf16 number. The products of 128 of the contraction, which are two steps, are a partial sum
// in fp32, and promotion multiplies it with the row's scale: sum = fma(partial, scale, sum).
//
// A row's four bytes in a tile are its scale in fp32, which is a bf16 or fp16 number, so that its
// lowest eight bits are free: they have z. Both steps of 128 columns have the same. In a word, pair
// i has its first code in bits 4i to 4i + 3 of the lower half, and its second one in these bits of
// the upper half.

#include "moejit_device/gemm/no_scales.cuh"
#include "moejit_device/gemm/packed_bf16_tile.cuh"
#include "moejit_device/ptx/convert.cuh"

namespace moejit::device {

struct Int4Codes {
  // Returns q - z of a thread's codes. A bf16 from 128 to 255 has its integer in the mantissa.
  MOEJIT_DEVICE static ptx::RowFragments decode(const PackedCodes& codes) {
    constexpr uint32_t k128 = 0x43004300u;
    ptx::RowFragments m;
#pragma unroll
    for (int32_t half = 0; half < 2; ++half) {
      const uint32_t zeros = k128 + (codes.scales[half] & 0xffu) * 0x00010001u;
#pragma unroll
      for (int32_t i = 0; i < 8; ++i) {
        const uint32_t pair = codes.words.word[i / 4 * 2 + half] >> (4 * (i % 4));
        m.word[i / 2][i % 2 * 2 + half] =
            ptx::subtract_bf16_pairs((pair & 0x000f000fu) | k128, zeros);
      }
    }
    return m;
  }

  MOEJIT_DEVICE static float scale(uint32_t bytes) {
    return ptx::float_from_bits(bytes & 0xffffff00u);
  }
};

// The second step's codes are decoded while the products of the first one run.
template <typename Multiply>
class Int4Mainloop {
 public:
  using Multiplier = Multiply;

  // Adds the products of k_steps steps, an even number. All threads of a math warpgroup; sums
  // [kW / 2] in the order of ptx::WgmmaSum.
  template <int32_t kW, int32_t kSteps, typename Stages>
  MOEJIT_DEVICE static void run(int32_t k_steps, const WarpgroupPart& part, const NoScales&,
                                StageReader<Stages>& reader, float (&sums)[kW / 2]) {
    static_assert(kSteps % 2 == 0, "whole groups of 128");
    const PackedBf16Rows<Stages> rows(part);
    const auto n = ptx::matrix_descriptor(Stages::a(0));
#pragma unroll 1
    for (int32_t left = k_steps; left > 0; left -= 2) {
      ptx::WgmmaSum<kW> partial;
      const int32_t first = reader.position.stage;
      reader.wait();
      const PackedCodes codes = rows.load(first);
      ptx::RowFragments m = Int4Codes::decode(codes);
      ptx::wgmma_fence(partial, m);
      ptx::wgmma_rows_bf16(partial, m, n + first * Stages::kStageBytes, false);
      ptx::wgmma_commit();
      reader.position.advance();
      const int32_t second = reader.position.stage;
      reader.wait();
      ptx::RowFragments m_second = Int4Codes::decode(rows.load(second));
      ptx::wgmma_fence(m_second);
      ptx::wgmma_rows_bf16(partial, m_second, n + second * Stages::kStageBytes, true);
      ptx::wgmma_commit();
      ptx::sync_warp();  // all lanes have read the words
      ptx::wgmma_wait<0>(partial, m, m_second);
      reader.release(first);
      reader.release(second);
      reader.position.advance();
      promote<kW>(partial, codes.scales, sums);
    }
  }

 private:
  template <int32_t kW>
  MOEJIT_DEVICE static void promote(const ptx::WgmmaSum<kW>& partial, const uint32_t (&scales)[2],
                                    float (&sums)[kW / 2]) {
    const float of_rows[2] = {Int4Codes::scale(scales[0]), Int4Codes::scale(scales[1])};
#pragma unroll
    for (int32_t i = 0; i < kW / 2; ++i)
      sums[i] = ptx::fused_multiply_add(partial(i), of_rows[i / 2 % 2], sums[i]);
  }
};

}  // namespace moejit::device
