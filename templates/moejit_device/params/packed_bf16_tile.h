// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moejit_device/core/types.cuh"

namespace moejit::device {

// Bytes of a packed tile of 4-bit codes that become bf16, 128 rows by 64 of the contraction: codes,
// then four bytes of scales for each row (gemm/packed_bf16_tile.cuh).
inline constexpr int32_t kPackedBf16CodeBytes = 128 * 64 / 2;
inline constexpr int32_t kPackedBf16TileBytes = kPackedBf16CodeBytes + 128 * 4;

// What bf16 codes of NVFP4 have to be multiplied with: the tile's are so many times smaller.
inline constexpr int32_t kNvfp4CodeFactor = 128;

}  // namespace moejit::device
