// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/transpose.h"

#include "tests/support/crc32.h"

#include <gtest/gtest.h>

namespace moejit::reference {
namespace {

constexpr Fp8Format kE4m3 = Fp8Format::kE4m3;
constexpr Fp8Format kE5m2 = Fp8Format::kE5m2;
constexpr TransposeRule kIdeal = TransposeRule::kIdeal;
constexpr TransposeRule kFork = TransposeRule::kForkCompat;

std::vector<std::uint8_t> shifted(std::uint8_t byte, const std::vector<int>& shifts,
                                  TransposeRule rule) {
  std::vector<std::uint8_t> bytes;
  for (const int shift : shifts) bytes.push_back(shifted_byte(byte, shift, kE4m3, rule));
  return bytes;
}

// Shifts 0 to 15 of all bytes.
std::vector<std::uint8_t> table(TransposeRule rule) {
  std::vector<std::uint8_t> bytes;
  for (int shift = 0; shift < 16; ++shift)
    for (int byte = 0; byte < 256; ++byte)
      bytes.push_back(shifted_byte(static_cast<std::uint8_t>(byte), shift, kE4m3, rule));
  return bytes;
}

// Published with the numbers of the system that fork_compat follows, computed there.
TEST(TransposeReference, HasTheTablesOfBothRules) {
  EXPECT_EQ(testing::crc32(table(kIdeal)), 0xb7667346U);
  EXPECT_EQ(testing::crc32(table(kFork)), 0x50170c2cU);
}

using Bytes = std::vector<std::uint8_t>;

TEST(TransposeReference, RoundsIntoTheSubnormals) {
  const std::vector<int> shifts = {0, 1, 2, 3, 4, 8, 14, 15, 18, 19};
  EXPECT_EQ(shifted(0x07, shifts, kIdeal), (Bytes{0x07, 0x04, 0x02, 0x01, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(shifted(0x0f, shifts, kIdeal), (Bytes{0x0f, 0x08, 0x04, 0x02, 0x01, 0, 0, 0, 0, 0}));
  EXPECT_EQ(shifted(0x17, shifts, kIdeal), (Bytes{0x17, 0x0f, 0x08, 0x04, 0x02, 0, 0, 0, 0, 0}));
  EXPECT_EQ(shifted(0x3c, shifts, kIdeal), (Bytes{0x3c, 0x34, 0x2c, 0x24, 0x1c, 0x03, 0, 0, 0, 0}));
  EXPECT_EQ(shifted(0x7e, shifts, kIdeal),
            (Bytes{0x7e, 0x76, 0x6e, 0x66, 0x5e, 0x3e, 0x0e, 0x07, 0x01, 0}));
}

TEST(TransposeReference, KeepsMantissasAsTheForkDoes) {
  const std::vector<int> shifts = {0, 1, 2, 3, 4, 8, 14, 15, 18, 19};
  EXPECT_EQ(shifted(0x07, shifts, kFork), Bytes(10, 0));
  EXPECT_EQ(shifted(0x0f, shifts, kFork), (Bytes{0x0f, 7, 7, 7, 7, 7, 7, 7, 7, 7}));
  EXPECT_EQ(shifted(0x17, shifts, kFork), (Bytes{0x17, 0x0f, 7, 7, 7, 7, 7, 7, 7, 7}));
  EXPECT_EQ(shifted(0x3c, shifts, kFork), (Bytes{0x3c, 0x34, 0x2c, 0x24, 0x1c, 4, 4, 4, 4, 4}));
  EXPECT_EQ(shifted(0x7e, shifts, kFork),
            (Bytes{0x7e, 0x76, 0x6e, 0x66, 0x5e, 0x3e, 0x0e, 6, 6, 6}));
}

TEST(TransposeReference, KeepsNanInfinityAndSignsOfZero) {
  for (const int shift : {0, 1, 40}) {
    for (const int byte : {0x00, 0x80, 0x7f, 0xff}) {
      EXPECT_EQ(shifted_byte(static_cast<std::uint8_t>(byte), shift, kE4m3, kIdeal), byte);
    }
    for (const int byte : {0x80, 0x7c, 0xfc, 0x7d, 0xff}) {
      EXPECT_EQ(shifted_byte(static_cast<std::uint8_t>(byte), shift, kE5m2, kIdeal), byte);
    }
  }
  EXPECT_EQ(shifted_byte(0xff, 1, kE4m3, kFork), 0xf7);
  EXPECT_EQ(shifted_byte(0x80, 0, kE4m3, kFork), 0x00);
}

// 57344 = 1.75 * 2^15; the smallest subnormal is 2^-16.
TEST(TransposeReference, RoundsE5m2) {
  EXPECT_EQ(shifted_byte(0x7b, 1, kE5m2, kIdeal), 0x77);
  EXPECT_EQ(shifted_byte(0x7b, 29, kE5m2, kIdeal), 0x07);
  EXPECT_EQ(shifted_byte(0x7b, 30, kE5m2, kIdeal), 0x04);
  EXPECT_EQ(shifted_byte(0xfb, 32, kE5m2, kIdeal), 0x81);
  EXPECT_EQ(shifted_byte(0xfb, 33, kE5m2, kIdeal), 0x80);
}

// Three rows of 16 columns: the second is zeros, whose scale counts only for the fork.
TEST(TransposeReference, TakesTheScaleOfRowsThatAreNotZeros) {
  QuantizedRows input{.rows = 3, .cols = 16, .q = Bytes(48, 0), .scale_inv = {0.5F, 8, 2}};
  input.q[1] = 0x3c;
  input.q[33] = 0x44;
  const TransposeGroups groups{.counts = {3}, .offs = {0, 3}, .output_offs = {0, 128}};
  const Transposed ideal = transpose(input, groups, 256, kE4m3, kIdeal, 0xcd);
  EXPECT_EQ(ideal.scale_inv[0], 2.0F);
  EXPECT_EQ(ideal.bytes[256], 0x2c);
  EXPECT_EQ(ideal.bytes[256 + 1], 0x00);
  EXPECT_EQ(ideal.bytes[256 + 2], 0x44);
  EXPECT_EQ(ideal.bytes[256 + 3], 0x00);    // fills up the group's 128 columns
  EXPECT_EQ(ideal.bytes[256 + 128], 0xcd);  // belongs to no group
  EXPECT_EQ(transpose(input, groups, 256, kE4m3, kFork, 0xcd).scale_inv[0], 8.0F);
}

TEST(TransposeReference, CountsWhatBecomesZero) {
  QuantizedRows input{.rows = 2, .cols = 16, .q = Bytes(32, 0), .scale_inv = {1, 0x1p-30F}};
  input.q[0] = 0x3c;
  input.q[16] = 0x3c;
  input.q[17] = 0x80;
  const TransposeGroups groups{.counts = {2}, .offs = {0, 2}, .output_offs = {0, 128}};
  EXPECT_EQ(transpose(input, groups, 128, kE4m3, kIdeal, 0).flushed, 1U);
}

}  // namespace
}  // namespace moejit::reference
