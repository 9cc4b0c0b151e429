// SPDX-License-Identifier: Apache-2.0
// Packed tiles have the values of the NVFP4 and INT4 weights that they were made of.
#include "runtime/reference/packed_bf16_weights.h"

#include "runtime/reference/number_formats.h"

#include <cstring>
#include <gtest/gtest.h>
#include <vector>

namespace moejit::reference {
namespace {

// Sections, rows and columns that end within a tile.
void expect_same_values(const RandomFourBit& given, std::int64_t cols, bool is_interleaved) {
  constexpr std::int64_t kExperts = 2, kRows = 288, kSections = 2, kHalf = kRows / kSections;
  const FourBitWeights weights = given.view(kExperts, kRows, cols, kSections, is_interleaved);
  const PackedBf16Weights packed = pack_four_bit(weights);
  EXPECT_FALSE(packed.is_bad);
  const Bf16Codes codes =
      unpack_four_bit(given.format, packed.tiles, kExperts, kRows, cols, kSections);
  for (std::int64_t i = 0; i < kExperts * kRows; ++i) {
    const std::int64_t row = i % kRows;
    const std::int64_t source =
        i - row + (is_interleaved ? row % kHalf * kSections + row / kHalf : row);
    for (std::int64_t col = 0; col < cols; ++col) {
      const auto place = static_cast<std::size_t>(i * cols + col);
      const float scale = codes.scales.empty() ? 1.0F : codes.scales[place / 128];
      ASSERT_EQ(float_from_bf16(codes.values[place]) * scale, value_of(weights, source, col))
          << row << " " << col;
    }
  }
}

TEST(PackedBf16Weights, HaveTheValuesOfTheWeights) {
  const RandomFourBit nvfp4 = random_four_bit(FourBitFormat::kNvfp4, 2 * 288 * 176, 1);
  const RandomFourBit int4 = random_four_bit(FourBitFormat::kInt4, 2 * 288 * 256, 2);
  for (const bool is_interleaved : {false, true}) {
    expect_same_values(nvfp4, 176, is_interleaved);
    expect_same_values(int4, 256, is_interleaved);
  }
}

// The example of docs/layer-description.md, by hand: row 9, column 26 is the pair of thread 5's
// word 1, 24 columns further on; its second code would be column 27.
TEST(PackedBf16Weights, HaveCodesWhereTheDocsSay) {
  std::vector<std::uint8_t> codes(128 * 32), scales(128 * 4, 0x38);
  codes[9 * 32 + 13] = 0x0f;  // -6 in column 26
  scales[9 * 4 + 1] = 0x81;   // -2^-9
  const auto packed = pack_four_bit({.format = FourBitFormat::kNvfp4,
                                     .experts = 1,
                                     .rows = 128,
                                     .cols = 64,
                                     .codes = codes,
                                     .scales = scales,
                                     .row_scales = {}});
  std::uint32_t word = 0;  // of thread 5: row 1, and 8 further on
  std::memcpy(&word, &packed.tiles[(5 * 4 + 1) * 4], sizeof(word));
  // The scale's sign is in the zeros of columns 18, 19 and 27, too.
  EXPECT_EQ(word, 1U << 14 | 1U << 7 | 1U << 8 | 1U << 19 | 1U << 3 | 1U << 31);
  EXPECT_EQ(packed.tiles[4096 + 9 * 4 + 1], 1 << 3);  // 2^(1 - 10)
  EXPECT_EQ(packed.tiles[4096 + 9 * 4], 10 << 3);     // 1
}

}  // namespace
}  // namespace moejit::reference
