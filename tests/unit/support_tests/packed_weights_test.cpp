// SPDX-License-Identifier: Apache-2.0
// Packed tiles have the values of the MXFP4 weights that they were made of.
#include "runtime/reference/packed_weights.h"

#include "runtime/reference/two_level.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

namespace moejit::reference {
namespace {

// The value of each code times its scale, and rows of gate before rows of up.
std::vector<float> values_of(const Mxfp4Weights& weights) {
  const std::int64_t half = weights.rows / weights.sections;
  std::vector<float> values;
  for (std::int64_t i = 0; i < weights.experts * weights.rows; ++i) {
    std::int64_t row = i % weights.rows;
    if (weights.is_interleaved) row = row % half * weights.sections + row / half;
    row += i / weights.rows * weights.rows;
    for (std::int64_t column = row * weights.cols; column < (row + 1) * weights.cols; ++column) {
      const auto byte = weights.codes[static_cast<std::size_t>(column / 2)];
      const auto code = static_cast<std::uint8_t>(byte >> (column % 2 * 4) & 15);
      const int scale = weights.scales[static_cast<std::size_t>(column / 32)];
      values.push_back(std::ldexp(decode_e2m1(code), scale - 127));
    }
  }
  return values;
}

void expect_same_values(const Mxfp4Weights& weights) {
  const PackedWeights packed = pack_weights(weights);
  EXPECT_FALSE(packed.bad_group.has_value());
  const QuantizedWeights codes = unpack_weights(packed.tiles, packed.scale_inv, weights.experts,
                                                weights.rows, weights.cols, weights.sections);
  const std::vector<float> got = dequantize(codes), wanted = values_of(weights);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], wanted[i]) << i;
    ASSERT_EQ(std::signbit(got[i]), std::signbit(wanted[i])) << i;
  }
}

constexpr Mxfp4Weights kPacked{.experts = 2, .rows = 288, .cols = 160, .codes = {}, .scales = {}};

TEST(PackWeights, ChangesNoValue) {
  const RandomMxfp4 given =
      random_mxfp4(kPacked.experts * kPacked.rows * kPacked.cols / kMxGroup, 3);
  expect_same_values(given.view(kPacked.experts, kPacked.rows, kPacked.cols));
  expect_same_values(given.view(kPacked.experts, kPacked.rows, kPacked.cols, 2));
  expect_same_values(given.view(kPacked.experts, kPacked.rows, kPacked.cols, 2, true));
}

// Scales at both ends of E8M0, groups of zeros far away from the others, and a tile of zeros.
TEST(PackWeights, KeepsTheSmallestAndTheLargestNumbers) {
  constexpr std::int64_t kGroups = 16 * 4;
  RandomMxfp4 given = random_mxfp4(kGroups, 4);
  for (const auto& [first, zeros] : {std::pair(0, 254), std::pair(240, 0)}) {
    for (std::size_t i = 0; i < kGroups; ++i) {
      given.scales[i] = static_cast<std::uint8_t>(first + i % 15);
      if (i % 5 != 0) continue;
      given.scales[i] = static_cast<std::uint8_t>(zeros);
      std::fill_n(given.codes.begin() + static_cast<std::int64_t>(16 * i), 16, std::uint8_t{0x80});
    }
    expect_same_values(given.view(1, 16, 128));
  }
  given.codes.assign(given.codes.size(), 0);
  expect_same_values(given.view(1, 16, 128));
  EXPECT_EQ(pack_weights(given.view(1, 16, 128)).scale_inv, std::vector{1.0F});
}

TEST(PackWeights, NamesTheFirstScaleThatNoTileCanExpress) {
  RandomMxfp4 given = random_mxfp4(kPacked.rows * kPacked.cols / kMxGroup, 5);
  const Mxfp4Weights weights = given.view(1, kPacked.rows, kPacked.cols);
  given.scales[80] = 255;  // of zeros, so that the others' scales are no problem
  std::fill_n(given.codes.begin() + 16 * 80, 16, std::uint8_t{0});
  // The largest scale of a tile is 127, and 112 is 15 below it.
  given.scales[42] = 112;
  const PackedWeights packed = pack_weights(weights);
  EXPECT_EQ(packed.bad_group, 42);
  std::int64_t bad_tiles = 0;
  for (const float scale : packed.scale_inv) bad_tiles += std::isnan(scale) ? 1 : 0;
  EXPECT_EQ(bad_tiles, 1);
  given.scales[42] = 113;
  EXPECT_EQ(pack_weights(weights).bad_group, 80);
}

}  // namespace
}  // namespace moejit::reference
