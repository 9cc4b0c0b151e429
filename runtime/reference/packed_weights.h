// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/quantize.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::reference {

// Bytes of a packed tile of MXFP4: 128 x 128 codes of four bits, and a byte for each 32 of a row.
inline constexpr std::int64_t kPackedCodeBytes = 8192, kPackedTileBytes = kPackedCodeBytes + 512;

// Returns packed MXFP4 weights as e4m3 codes with the same values and scales. `packed` is [experts,
// sections * block_count(rows / sections), block_count(cols), kPackedTileBytes], as
// docs/layer-description.md describes its tiles. Each byte of a group is 14 or less.
QuantizedWeights unpack_weights(std::span<const std::uint8_t> packed,
                                std::span<const float> scale_inv, std::int64_t experts,
                                std::int64_t rows, std::int64_t cols, std::int64_t sections);

// Returns packed tiles of random codes, in which every scale of a group that there is occurs.
std::vector<std::uint8_t> random_packed_tiles(std::int64_t tiles, std::uint64_t seed);

}  // namespace moejit::reference
