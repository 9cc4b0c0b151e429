// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/reference/microscaling.h"
#include "runtime/reference/quantize.h"

#include <cstdint>
#include <optional>
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

// MXFP4 weights as checkpoints have them. `codes` are E2M1 [experts, rows, cols / 2], the first of
// a byte in its low half. `scales` are E8M0 [experts, rows, cols / 32]. cols is a multiple of 32.
struct Mxfp4Weights {
  std::int64_t experts = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t sections = 1;    // 2: gate and up
  bool is_interleaved = false;  // whether rows of the sections alternate
  std::span<const std::uint8_t> codes;
  std::span<const std::uint8_t> scales;
};

struct PackedWeights {
  std::vector<std::uint8_t> tiles;
  std::vector<float> scale_inv;  // NaN of a tile with a bad group
  // The first of `scales` that no e4m3 codes of its tile can express. It is NaN, or lies more than
  // 14 powers of two below the tile's largest one.
  std::optional<std::int64_t> bad_group;
};

// Packs MXFP4 weights into tiles of the same values, whose scales are powers of two.
PackedWeights pack_weights(const Mxfp4Weights& weights);

// Random codes of groups of 32, with scales that every tile can express.
struct RandomMxfp4 {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;

  Mxfp4Weights view(std::int64_t experts, std::int64_t rows, std::int64_t cols,
                    std::int64_t sections = 1, bool is_interleaved = false) const;
};
RandomMxfp4 random_mxfp4(std::int64_t groups, std::uint64_t seed);

}  // namespace moejit::reference
