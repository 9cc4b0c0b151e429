// SPDX-License-Identifier: Apache-2.0
#pragma once

// The scales of a tile's rows, the tile's own, and by how much each row is shifted. A warp has 64
// rows: lane l those with the indices 2l and 2l + 1.

#include "moejit_device/core/integer.cuh"
#include "moejit_device/params/status_bits.h"
#include "moejit_device/params/transpose_params.h"
#include "moejit_device/ptx/memory.cuh"
#include "moejit_device/ptx/warp.cuh"

namespace moejit::device {

// Bits of the scales of this lane's two rows; 0 where there is no row.
struct RowScalePair {
  uint32_t bits[2];
};

// Reports scales that are neither 0 nor a power of two: the result is then what their exponent
// fields say. 2^-127 is the one power of two that is a subnormal with a bit set.
MOEJIT_DEVICE void check_scales(const TransposeParams& params, const RowScalePair& scale) {
  const auto is_bad = [](uint32_t bits) {
    const bool is_power = (bits & 0x807fffffu) == 0 && bits != 0x7f800000u;
    return !is_power && bits != 0x00400000u;
  };
  const auto status = ptx::global(params.status);
  if ((is_bad(scale.bits[0]) || is_bad(scale.bits[1])) && status)
    ptx::atomic_or(status, kStatusBadScale);
}

// Scales that are not negative are ordered like their bits. The top bit is free: it puts scales of
// rows that count before scales of rows that hold only zeros. If all rows hold zeros, the largest
// of their scales is found.
MOEJIT_DEVICE uint32_t rank_of(uint32_t bits, bool counts) {
  return (bits & 0x7fffffffu) | (counts ? 0x80000000u : 0u);
}

// Returns the largest rank of a warp, in all lanes.
MOEJIT_DEVICE uint32_t largest_rank(uint32_t rank) {
#pragma unroll
  for (int32_t mask = 16; mask > 0; mask /= 2) rank = larger(rank, ptx::shuffle_xor(rank, mask));
  return rank;
}

// log2(S / s), 0 where that is negative: such a row holds only zeros.
MOEJIT_DEVICE int32_t shift_between(uint32_t scale, uint32_t tile_scale) {
  const auto exponent = [](uint32_t bits) { return static_cast<int32_t>((bits >> 23) & 255u); };
  return larger(exponent(tile_scale) - exponent(scale), int32_t{0});
}

}  // namespace moejit::device
