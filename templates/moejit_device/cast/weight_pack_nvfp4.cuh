// SPDX-License-Identifier: Apache-2.0
#pragma once

// NVFP4 in packed tiles, as gemm/nvfp4_mainloop.cuh reads them.

#include "moejit_device/cast/weight_pack_bf16.cuh"

namespace moejit::device {

struct PackNvfp4 {
  static constexpr int32_t kGroup = 16;

  MOEJIT_DEVICE static uint32_t word(const uint32_t (&pairs)[4]) {
    return magnitudes(pairs[0]) | signs(pairs[0]) << 9 | magnitudes(pairs[1]) << 4 |
           signs(pairs[1]) << 13 | magnitudes(pairs[2]) << 10 | swapped(signs(pairs[2])) << 3 |
           last_pair(pairs[3]);
  }

  template <int32_t kColumns>
  MOEJIT_DEVICE static bool take_scales(const WeightPackBf16Params& params, int64_t row,
                                        int32_t column, PackedPart& part) {
    const auto scales = ptx::global(params.input_scale_inv) + (row * (kColumns / 16) + column / 16);
    bool is_good = true;
#pragma unroll
    for (int32_t i = 0; i < 2; ++i) {
      if (column + 16 * i >= kColumns) continue;
      const uint32_t code = ptx::load(scales + i);
      is_good &= (code & 0x7fu) != kNan;
      part.scales |= tile_scale(code & 0x7fu) << (8 * i);
      // The tile's scales have no sign, and no zero.
      const uint32_t kept = (code & 0x7fu) == 0 ? 0x88888888u : 0xffffffffu;
      const uint32_t flipped = (code & 0x80u) != 0 ? 0x88888888u : 0;
      part.words[2 * i] = (part.words[2 * i] & kept) ^ flipped;
      part.words[2 * i + 1] = (part.words[2 * i + 1] & kept) ^ flipped;
    }
    return is_good;
  }

 private:
  static constexpr uint32_t kNan = 0x7fu, kTileNan = 0x99u;

  // Returns a magnitude of E4M3 with five bits of exponent and its leading one.
  MOEJIT_DEVICE static uint32_t tile_scale(uint32_t magnitude) {
    if (magnitude == kNan) return kTileNan;
    if (magnitude >= 8) return magnitude + (3u << 3);
    return ptx::select_bytes(0x14100800u, 0x1e1c1a18u, magnitude) & 0xffu;  // multiples of 2^-9
  }

  // Return the magnitudes, or the signs, of a byte's two codes in the lowest bits of both halves.
  MOEJIT_DEVICE static uint32_t magnitudes(uint32_t pair) {
    return (pair & 7u) | (pair >> 4 & 7u) << 16;
  }
  MOEJIT_DEVICE static uint32_t signs(uint32_t pair) {
    return (pair >> 3 & 1u) | (pair >> 7) << 16;
  }
  MOEJIT_DEVICE static uint32_t swapped(uint32_t word) { return word << 16 | word >> 16; }

  // A magnitude's lowest bit is apart from the others.
  MOEJIT_DEVICE static uint32_t last_pair(uint32_t pair) {
    const uint32_t m = magnitudes(pair);
    return (m & 0x00010001u) << 14 | (m >> 1 & 0x00030003u) << 7 | signs(pair) << 15;
  }
};

}  // namespace moejit::device
