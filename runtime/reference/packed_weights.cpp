// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/packed_weights.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"

#include <cmath>

namespace moejit::reference {
namespace {

// Returns the e4m3 code of the element in this row and column of a packed tile.
std::uint8_t element_of(const std::uint8_t* tile, std::int64_t row, std::int64_t column) {
  constexpr float kMagnitudes[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const std::int64_t half = row / 8 % 2, group = column / 32;
  const std::int64_t thread = row % 64 / 16 * 32 + row % 8 * 4 + column % 16 / 4;
  const std::uint8_t* word = tile + ((row / 64 * 2 + half) * 128 + thread) * 16 + group * 4;
  // Codes 0 to 3 of a word are in the group's first 16 columns, 4 to 7 in its last.
  const std::int64_t in_four = column % 4, is_last = column % 32 / 16;
  const std::int64_t code = in_four + 4 * is_last;
  const int magnitude = word[code / 2] >> (code % 2 * 4) & 7;
  const bool is_negative = (word[in_four] >> (is_last == 1 ? 3 : 7) & 1) != 0;
  const int shift = tile[kPackedCodeBytes + row * 4 + group] - 8;
  const float value = std::ldexp(kMagnitudes[magnitude], shift);
  return encode_e4m3(is_negative ? -value : value);
}

}  // namespace

QuantizedWeights unpack_weights(std::span<const std::uint8_t> packed,
                                std::span<const float> scale_inv, std::int64_t experts,
                                std::int64_t rows, std::int64_t cols, std::int64_t sections) {
  QuantizedWeights weights{experts, rows, cols, sections, {}, {scale_inv.begin(), scale_inv.end()}};
  weights.q.resize(static_cast<std::size_t>(experts * rows * cols));
  const std::int64_t section_rows = rows / sections;
  for (std::int64_t i = 0; i < experts * rows; ++i) {
    const std::int64_t tile_row = i / rows * weights.scale_rows() + weights.scale_row_of(i % rows);
    for (std::int64_t column = 0; column < cols; ++column) {
      const std::int64_t tile = tile_row * block_count(cols) + column / kBlock;
      weights.q[static_cast<std::size_t>(i * cols + column)] =
          element_of(packed.data() + tile * kPackedTileBytes, i % rows % section_rows % kBlock,
                     column % kBlock);
    }
  }
  return weights;
}

std::vector<std::uint8_t> random_packed_tiles(std::int64_t tiles, std::uint64_t seed) {
  constexpr std::int64_t kCodes = 256, kGroupScales = 15;
  const RandomStream random(seed, 0);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(tiles * kPackedTileBytes));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool is_code = i % kPackedTileBytes < kPackedCodeBytes;
    bytes[i] = static_cast<std::uint8_t>(random.below(i, is_code ? kCodes : kGroupScales));
  }
  return bytes;
}

}  // namespace moejit::reference
