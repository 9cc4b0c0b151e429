// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/packed_weights.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/two_level.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace moejit::reference {
namespace {

// Where a tile has the code of a row and column: the first byte of a word of eight codes, and which
// of these.
struct CodePlace {
  std::int64_t word;
  std::int64_t code;

  static CodePlace of(std::int64_t row, std::int64_t column) {
    const std::int64_t half = row / 8 % 2, group = column / 32;
    const std::int64_t thread = row % 64 / 16 * 32 + row % 8 * 4 + column % 16 / 4;
    // Codes 0 to 3 of a word are in the group's first 16 columns, 4 to 7 in its last.
    return {((row / 64 * 2 + half) * 128 + thread) * 16 + group * 4,
            column % 4 + column % 32 / 16 * 4};
  }
  std::int64_t magnitude_byte() const { return word + code / 2; }
  std::int64_t magnitude_shift() const { return code % 2 * 4; }
  std::int64_t sign_byte() const { return word + code % 4; }
  std::int64_t sign_shift() const { return code < 4 ? 7 : 3; }
};

// Returns the e4m3 code of the element in this row and column of a packed tile.
std::uint8_t element_of(const std::uint8_t* tile, std::int64_t row, std::int64_t column) {
  const CodePlace place = CodePlace::of(row, column);
  const int magnitude = tile[place.magnitude_byte()] >> place.magnitude_shift() & 7;
  const int sign = tile[place.sign_byte()] >> place.sign_shift() & 1;
  const int shift = tile[kPackedCodeBytes + row * 4 + column / 32] - 8;
  const auto code = static_cast<std::uint8_t>(sign << 3 | magnitude);
  return encode_e4m3(std::ldexp(decode_e2m1(code), shift));
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

namespace {

constexpr int kMostShift = 6, kLeastShift = -8, kScaleBias = 127, kNanScale = 255;
constexpr std::int64_t kGroupBytes = kMxGroup / 2, kTileGroups = kBlock / kMxGroup;

// Groups of a tile by row and column of groups; -1 where the matrix has ended.
using TileGroups = std::array<std::int64_t, kBlock * kTileGroups>;

TileGroups groups_of_tile(const Mxfp4Weights& weights, std::int64_t tile) {
  const std::int64_t across = block_count(weights.cols), row_groups = weights.cols / kMxGroup;
  const std::int64_t section_rows = weights.rows / weights.sections;
  const std::int64_t section_tiles = block_count(section_rows) * across;
  const std::int64_t section = tile / section_tiles % weights.sections;
  TileGroups groups;
  for (std::int64_t i = 0; i < std::ssize(groups); ++i) {
    const std::int64_t row = tile % section_tiles / across * kBlock + i / kTileGroups;
    const std::int64_t group = tile % across * kTileGroups + i % kTileGroups;
    const std::int64_t of_matrix =
        weights.is_interleaved ? weights.sections * row + section : section * section_rows + row;
    const std::int64_t matrix = tile / section_tiles / weights.sections;
    groups[static_cast<std::size_t>(i)] =
        row < section_rows && group < row_groups
            ? (matrix * weights.rows + of_matrix) * row_groups + group
            : -1;
  }
  return groups;
}

class TilePacker {
 public:
  TilePacker(const Mxfp4Weights& weights, PackedWeights& packed)
      : weights_(weights), packed_(packed) {}

  void pack(std::int64_t index) {
    const TileGroups groups = groups_of_tile(weights_, index);
    int largest = -1;
    for (const std::int64_t group : groups)
      if (has_values(group)) largest = std::max(largest, scale(group));
    const int base = largest < 0 ? kScaleBias : std::max(largest - kMostShift, 1);
    bool is_bad = false;
    std::uint8_t* const tile = packed_.tiles.data() + index * kPackedTileBytes;
    for (std::int64_t i = 0; i < std::ssize(groups); ++i) {
      const std::int64_t group = groups[static_cast<std::size_t>(i)];
      if (group < 0) continue;
      const int shift = has_values(group) ? scale(group) - base : 0;
      if (scale(group) == kNanScale || shift < kLeastShift) {
        is_bad = true;
        packed_.bad_group = std::min(packed_.bad_group.value_or(group), group);
      }
      tile[kPackedCodeBytes + i] =
          static_cast<std::uint8_t>(std::max(shift, kLeastShift) - kLeastShift);
      for (std::int64_t column = 0; column < kMxGroup; ++column)
        put(tile, i / kTileGroups, i % kTileGroups * kMxGroup + column, code(group, column));
    }
    packed_.scale_inv[static_cast<std::size_t>(index)] =
        is_bad ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, base - kScaleBias);
  }

 private:
  int scale(std::int64_t group) const { return weights_.scales[static_cast<std::size_t>(group)]; }
  std::uint8_t code(std::int64_t group, std::int64_t column) const {
    const auto byte = static_cast<std::size_t>(group * kGroupBytes + column / 2);
    return static_cast<std::uint8_t>(weights_.codes[byte] >> (column % 2 * 4) & 15);
  }
  // Returns whether a group of the matrix has another magnitude than 0.
  bool has_values(std::int64_t group) const {
    if (group < 0) return false;
    const auto first = weights_.codes.begin() + group * kGroupBytes;
    return std::any_of(first, first + kGroupBytes, [](std::uint8_t byte) { return byte & 0x77; });
  }
  static void put(std::uint8_t* tile, std::int64_t row, std::int64_t column, std::uint8_t code) {
    const CodePlace place = CodePlace::of(row, column);
    tile[place.magnitude_byte()] |=
        static_cast<std::uint8_t>((code & 7) << place.magnitude_shift());
    tile[place.sign_byte()] |= static_cast<std::uint8_t>(code >> 3 << place.sign_shift());
  }

  const Mxfp4Weights& weights_;
  PackedWeights& packed_;
};

}  // namespace

PackedWeights pack_weights(const Mxfp4Weights& weights) {
  const std::int64_t tiles = weights.experts * weights.sections *
                             block_count(weights.rows / weights.sections) *
                             block_count(weights.cols);
  PackedWeights packed;
  packed.tiles.resize(static_cast<std::size_t>(tiles * kPackedTileBytes));
  packed.scale_inv.resize(static_cast<std::size_t>(tiles));
  TilePacker packer(weights, packed);
  for (std::int64_t tile = 0; tile < tiles; ++tile) packer.pack(tile);
  return packed;
}

Mxfp4Weights RandomMxfp4::view(std::int64_t experts, std::int64_t rows, std::int64_t cols,
                               std::int64_t sections, bool is_interleaved) const {
  return {experts, rows, cols, sections, is_interleaved, codes, scales};
}

RandomMxfp4 random_mxfp4(std::int64_t groups, std::uint64_t seed) {
  const RandomStream random(seed, 0), of_scales(seed, 1);
  RandomMxfp4 weights;
  for (std::int64_t i = 0; i < groups; ++i) {
    weights.scales.push_back(
        static_cast<std::uint8_t>(113 + of_scales.below(static_cast<std::uint64_t>(i), 15)));
    for (std::int64_t byte = 0; byte < kGroupBytes; ++byte)
      weights.codes.push_back(static_cast<std::uint8_t>(
          random.below(static_cast<std::uint64_t>(i * kGroupBytes + byte), 256)));
  }
  return weights;
}

}  // namespace moejit::reference
