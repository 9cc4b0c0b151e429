// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/packed_bf16_weights.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/parallel_for.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/two_level.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace moejit::reference {
namespace {

constexpr std::int64_t kBf16TileColumns = 64, kNvfp4Group = 16, kInt4Group = 128;
constexpr std::uint8_t kNanTileScale = 0x99;

// The bits of a word of eight codes that have each code's four bits, lowest first. The word has
// four pairs; the second code of a pair is 16 bits further on, round the word.
constexpr std::array<std::array<int, 4>, 4> kNvfp4Bits = {
    {{0, 1, 2, 9}, {4, 5, 6, 13}, {10, 11, 12, 19}, {14, 7, 8, 15}}};
constexpr std::array<std::array<int, 4>, 4> kInt4Bits = {
    {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}};

// Where a tile has the code of a row and column.
struct FourBitPlace {
  std::int64_t byte;  // first one of the word
  std::array<int, 4> bits;

  static FourBitPlace of(FourBitFormat format, std::int64_t row, std::int64_t column) {
    const std::int64_t thread = row % 64 / 16 * 32 + row % 8 * 4 + column % 8 / 2;
    const std::int64_t word = column / 32 * 2 + row / 8 % 2;
    FourBitPlace place{(row / 64 * 128 + thread) * 16 + word * 4, {}};
    const auto pair = static_cast<std::size_t>(column % 32 / 8);
    place.bits = (format == FourBitFormat::kNvfp4 ? kNvfp4Bits : kInt4Bits)[pair];
    if (column % 2 != 0)
      for (int& bit : place.bits) bit = (bit + 16) % 32;
    return place;
  }
};

std::uint32_t read_word(const std::uint8_t* from) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

int four_bit_code(FourBitFormat format, const std::uint8_t* tile, std::int64_t row,
                  std::int64_t column) {
  const FourBitPlace place = FourBitPlace::of(format, row, column);
  const auto word = read_word(tile + place.byte);
  int code = 0;
  for (int i = 0; i < 4; ++i)
    code |= static_cast<int>(word >> place.bits[static_cast<std::size_t>(i)] & 1u) << i;
  return code;
}

void put_four_bit_code(FourBitFormat format, std::uint8_t* tile, std::int64_t row,
                       std::int64_t column, int code) {
  const FourBitPlace place = FourBitPlace::of(format, row, column);
  auto word = read_word(tile + place.byte);
  for (int i = 0; i < 4; ++i)
    word |= static_cast<std::uint32_t>(code >> i & 1) << place.bits[static_cast<std::size_t>(i)];
  std::memcpy(tile + place.byte, &word, sizeof(word));
}

// A tile's scale of NVFP4: 1.m * 2^(e - 10) with five bits e and three bits m; 0 for all of 0.
std::uint8_t tile_scale(float magnitude) {
  if (std::isnan(magnitude)) return kNanTileScale;
  if (magnitude == 0) return 0;
  int exponent = 0;
  const float fraction = std::frexp(magnitude, &exponent);  // 0.5 to 1
  return static_cast<std::uint8_t>((exponent + 9) * 8 + static_cast<int>((fraction * 2 - 1) * 8));
}
float tile_scale_value(std::uint8_t byte) {
  if (byte == kNanTileScale) return std::nanf("");
  return byte == 0 ? 1.0F : std::ldexp(1.0F + static_cast<float>(byte % 8) / 8, byte / 8 - 10);
}

std::size_t usize(std::int64_t i) { return static_cast<std::size_t>(i); }

int given_four_bit_code(const FourBitWeights& weights, std::int64_t row, std::int64_t col) {
  return weights.codes[usize((row * weights.cols + col) / 2)] >> (col % 2 * 4) & 15;
}

// Puts a row's codes of a tile, and its scales.
void pack_four_bit_row(const FourBitWeights& weights, std::int64_t row, std::int64_t first,
                       std::uint8_t* tile, std::int64_t tile_row, bool& is_bad) {
  std::uint8_t* const scales = tile + kPackedBf16CodeBytes + 4 * tile_row;
  const std::int64_t last = std::min(first + kBf16TileColumns, weights.cols);
  for (std::int64_t col = first; col < last; ++col) {
    int code = given_four_bit_code(weights, row, col);
    if (weights.format == FourBitFormat::kNvfp4) {
      const float scale =
          decode_e4m3(weights.scales[usize((row * weights.cols + col) / kNvfp4Group)]);
      is_bad |= std::isnan(scale);
      scales[(col - first) / kNvfp4Group] = tile_scale(std::fabs(scale));
      if (scale == 0) code &= 8;
      if (weights.scales[usize((row * weights.cols + col) / kNvfp4Group)] >= 0x80) code ^= 8;
    }
    put_four_bit_code(weights.format, tile, tile_row, col - first, code);
  }
  if (weights.format == FourBitFormat::kNvfp4) return;
  const std::size_t group = usize((row * weights.cols + first) / kInt4Group);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(weights.row_scales[group]);
  const std::uint32_t word = (bits & ~255u) | weights.zeros[group];
  std::memcpy(scales, &word, sizeof(word));
  is_bad |=
      bits % 256 != 0 || !std::isfinite(weights.row_scales[group]) || weights.zeros[group] > 16;
}

}  // namespace

PackedBf16Weights pack_four_bit(const FourBitWeights& weights) {
  const std::int64_t section_rows = weights.rows / weights.sections;
  const std::int64_t down = block_count(section_rows) * weights.sections;
  const std::int64_t across = (weights.cols + kBf16TileColumns - 1) / kBf16TileColumns;
  PackedBf16Weights packed;
  packed.tiles.resize(usize(weights.experts * down * across * kPackedBf16TileBytes));
  for (std::int64_t row = 0; row < weights.experts * weights.rows; ++row) {
    const std::int64_t in_matrix = row % weights.rows;
    const std::int64_t section =
        weights.is_interleaved ? in_matrix % weights.sections : in_matrix / section_rows;
    const std::int64_t in_section =
        weights.is_interleaved ? in_matrix / weights.sections : in_matrix % section_rows;
    const std::int64_t tile_row =
        row / weights.rows * down + section * block_count(section_rows) + in_section / kBlock;
    for (std::int64_t tile = 0; tile < across; ++tile)
      pack_four_bit_row(weights, row, tile * kBf16TileColumns,
                        packed.tiles.data() + (tile_row * across + tile) * kPackedBf16TileBytes,
                        in_section % kBlock, packed.is_bad);
  }
  return packed;
}

float value_of(const FourBitWeights& weights, std::int64_t row, std::int64_t col) {
  const int code = given_four_bit_code(weights, row, col);
  if (weights.format == FourBitFormat::kNvfp4)
    return decode_e2m1(static_cast<std::uint8_t>(code)) *
           decode_e4m3(weights.scales[usize((row * weights.cols + col) / kNvfp4Group)]);
  const std::size_t group = usize((row * weights.cols + col) / kInt4Group);
  return static_cast<float>(code - weights.zeros[group]) * weights.row_scales[group];
}

Bf16Codes unpack_four_bit(FourBitFormat format, std::span<const std::uint8_t> tiles,
                          std::int64_t experts, std::int64_t rows, std::int64_t cols,
                          std::int64_t sections) {
  Bf16Codes codes{.rows = rows, .cols = cols, .values = {}, .scales = {}};
  const std::int64_t section_rows = rows / sections;
  const std::int64_t across = (cols + kBf16TileColumns - 1) / kBf16TileColumns;
  for (std::int64_t row = 0; row < experts * rows; ++row) {
    const std::int64_t tile_row =
        (row / rows * sections + row % rows / section_rows) * block_count(section_rows) +
        row % rows % section_rows / kBlock;
    const std::int64_t in_tile = row % rows % section_rows % kBlock;
    for (std::int64_t col = 0; col < cols; ++col) {
      const std::uint8_t* const tile =
          tiles.data() + (tile_row * across + col / kBf16TileColumns) * kPackedBf16TileBytes;
      const std::uint8_t* const scales = tile + kPackedBf16CodeBytes + 4 * in_tile;
      const int code = four_bit_code(format, tile, in_tile, col % kBf16TileColumns);
      if (format == FourBitFormat::kNvfp4) {
        codes.values.push_back(
            bf16_from_float(decode_e2m1(static_cast<std::uint8_t>(code)) *
                            tile_scale_value(scales[col % kBf16TileColumns / 16])));
        continue;
      }
      const auto word = read_word(scales);
      codes.values.push_back(
          bf16_from_float(static_cast<float>(code - static_cast<int>(word & 255))));
      if (col % kInt4Group == 0) codes.scales.push_back(std::bit_cast<float>(word & ~255u));
    }
  }
  return codes;
}

std::vector<float> packed_gemm_sums(std::span<const std::uint16_t> rows, const Bf16Codes& codes,
                                    std::span<const float> factors, const Route& route,
                                    const TensorCoreRule& rule) {
  const std::int64_t depth = codes.cols, columns = codes.rows;
  const std::int64_t sections = std::ssize(factors) / std::ssize(route.counts);
  const std::int64_t length = codes.scales.empty() ? depth : kInt4Group;
  std::vector<float> sums(usize(route.rows() * columns), 0.0F);
  for (std::size_t e = 0; e < route.counts.size(); ++e) {
    const std::int64_t first = route.offs[e], count = route.counts[e];
    if (count == 0) continue;
    const TensorCoreNumbers a(rows.subspan(usize(first * depth), usize(count * depth)), rule);
    const std::int64_t matrix = static_cast<std::int64_t>(e) * columns;
    parallel_for(columns, [&](std::int64_t n) {
      const auto row = std::span(codes.values).subspan(usize((matrix + n) * depth), usize(depth));
      const TensorCoreNumbers b(row, rule);
      const float factor = factors[e * usize(sections) + usize(n / (columns / sections))];
      for (std::int64_t i = 0; i < count; ++i) {
        float sum = 0.0F;
        for (std::int64_t k = 0; k < depth; k += length) {
          const float partial = tensor_core_chain(a, i * depth + k, b, k, length);
          sum = codes.scales.empty()
                    ? partial
                    : std::fma(partial, codes.scales[usize(((matrix + n) * depth + k) / length)],
                               sum);
        }
        sums[usize((first + i) * columns + n)] = sum * factor;
      }
    });
  }
  return sums;
}

FourBitWeights RandomFourBit::view(std::int64_t experts, std::int64_t rows, std::int64_t cols,
                                   std::int64_t sections, bool is_interleaved) const {
  return {format, experts, rows, cols, sections, is_interleaved, codes, scales, row_scales, zeros};
}

RandomFourBit random_four_bit(FourBitFormat format, std::int64_t elements, std::uint64_t seed) {
  const RandomStream of_codes(seed, 0), of_scales(seed, 1), of_zeros(seed, 2);
  RandomFourBit weights{.format = format, .codes = {}, .scales = {}, .zeros = {}, .row_scales = {}};
  for (std::int64_t i = 0; i < elements / 2; ++i)
    weights.codes.push_back(
        static_cast<std::uint8_t>(of_codes.below(static_cast<std::uint64_t>(i), 256)));
  if (format == FourBitFormat::kNvfp4) {
    for (std::int64_t i = 0; i < elements / kNvfp4Group; ++i) {
      const auto code =
          static_cast<std::uint8_t>(of_scales.below(static_cast<std::uint64_t>(i), 254));
      weights.scales.push_back(static_cast<std::uint8_t>(code % 127 + code / 127 * 128));  // no NaN
    }
    return weights;
  }
  for (std::int64_t i = 0; i < elements / kInt4Group; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    // fp16 numbers have eleven significant bits.
    weights.row_scales.push_back(static_cast<float>(1024 + of_scales.below(at, 1024)) * 0x1p-20F);
    weights.zeros.push_back(static_cast<std::uint8_t>(of_zeros.below(at, 17)));
  }
  return weights;
}

std::vector<float> random_section_factors(FourBitFormat format, std::int64_t count,
                                          std::uint64_t seed) {
  const RandomStream random(seed, 3);
  std::vector<float> factors;
  for (std::int64_t i = 0; i < count; ++i)
    factors.push_back(static_cast<float>(1.0 + random.uniform(static_cast<std::uint64_t>(i))) *
                      (format == FourBitFormat::kNvfp4 ? 0x1p-14F : 0x1p-1F));
  return factors;
}

}  // namespace moejit::reference
