// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/compare.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace moejit::testing {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Words = std::vector<std::uint16_t>;
using Doubles = std::vector<double>;

constexpr double kNanOfDouble = std::numeric_limits<double>::quiet_NaN();

TEST(Compare, EqualTensorsHaveNoMessage) {
  const Comparison result = compare_e4m3({"x_q", 2}, Bytes{1, 2, 3, 4}, Bytes{1, 2, 3, 4});
  EXPECT_TRUE(result.is_equal());
  EXPECT_EQ(result.compared, 4);
  EXPECT_EQ(result.message, "");
}

TEST(Compare, NamesTheFirstDifferenceWithItsPlaceAndValues) {
  const Comparison result =
      compare_e4m3({"x_q", 2}, Bytes{0x38, 0x38, 0x38, 0xB8}, Bytes{0x38, 0x38, 0x40, 0x38});
  EXPECT_FALSE(result.is_equal());
  EXPECT_EQ(result.differing, 2);
  EXPECT_EQ(result.message,
            "x_q: 2 of 4 elements differ, the first at row 1, column 0: got 0x38 (1), wanted 0x40 "
            "(2)");
}

TEST(Compare, ADifferentLengthIsADifference) {
  const Comparison result = compare_i32({"counts", 1}, std::vector<std::int32_t>{1}, {});
  EXPECT_FALSE(result.is_equal());
  EXPECT_EQ(result.message, "counts: got 1 elements, wanted 0");
}

TEST(Compare, SeesAll64Bits) {
  const std::vector<std::int64_t> got = {7, std::int64_t{1} << 32};
  EXPECT_EQ(compare_i64({"ids"}, got, std::vector<std::int64_t>{7, 0}).message,
            "ids: 1 of 2 elements differ, the first at row 1, column 0: got 4294967296, wanted 0");
}

TEST(Compare, TellsTheZerosApartButNotTheNans) {
  EXPECT_FALSE(compare_f32({"s"}, std::vector<float>{0.0F}, std::vector<float>{-0.0F}).is_equal());
  EXPECT_FALSE(compare_bf16({"y"}, Words{0x8000}, Words{0x0000}).is_equal());
  EXPECT_TRUE(compare_bf16({"y"}, Words{0x7FFF}, Words{0xFFC0}).is_equal());
  EXPECT_FALSE(compare_bf16({"y"}, Words{0x7F80}, Words{0x7FC0}).is_equal());
  // The NaN code of fp8 is part of the contract.
  EXPECT_FALSE(compare_e4m3({"q"}, Bytes{0xFF}, Bytes{0x7F}).is_equal());
}

TEST(Compare, PassesOverMaskedRows) {
  const Bytes mask{1, 0, 1};
  const Comparison result =
      compare_bf16({"h2", 2, mask}, Words{1, 2, 9, 9, 5, 6}, Words{1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(result.is_equal());
  EXPECT_EQ(result.compared, 4);
}

TEST(WithinOneCode, AcceptsNeighboursAlsoAcrossZero) {
  const auto is_near = [](std::uint8_t got, std::uint8_t wanted) {
    return compare_e4m3_within_one_code({"q"}, Bytes{got}, Bytes{wanted}).is_equal();
  };
  EXPECT_TRUE(is_near(0x38, 0x39));
  EXPECT_TRUE(is_near(0x3F, 0x40));
  EXPECT_TRUE(is_near(0x80, 0x00));
  EXPECT_TRUE(is_near(0x81, 0x00));
  EXPECT_FALSE(is_near(0x81, 0x01));
  EXPECT_FALSE(is_near(0x38, 0x3A));
  EXPECT_FALSE(is_near(0x38, 0xB8));
}

TEST(WithinOneCode, DoesNotTakeNanForANeighbourOfTheLargest) {
  EXPECT_FALSE(compare_e4m3_within_one_code({"q"}, Bytes{0x7F}, Bytes{0x7E}).is_equal());
  EXPECT_TRUE(compare_e4m3_within_one_code({"q"}, Bytes{0x7F}, Bytes{0x7F}).is_equal());
}

TEST(WithinBound, HoldsEachElementToItsOwnBound) {
  const Words got{0x3F80, 0x3F80};  // 1, 1
  EXPECT_TRUE(compare_bf16_within({"h1"}, got, Doubles{1.5, 1.0}, Doubles{0.5, 0.0}).is_equal());
  const Comparison result = compare_bf16_within({"h1"}, got, Doubles{1.5, 1.5}, Doubles{1.0, 0.25});
  EXPECT_EQ(result.differing, 1);
  EXPECT_EQ(result.worst_ratio, 2.0);
  EXPECT_EQ(result.message,
            "h1: 1 of 2 elements differ, the first at row 1, column 0: got 0x3F80 (1), wanted 1.5 "
            "within 0.25");
}

TEST(WithinBound, NanEqualsOnlyNanAndInfOnlyWhatIsOutOfRange) {
  const Doubles bound{1.0};
  EXPECT_TRUE(compare_bf16_within({"h1"}, Words{0x7FFF}, Doubles{kNanOfDouble}, bound).is_equal());
  EXPECT_FALSE(compare_bf16_within({"h1"}, Words{0x7FFF}, Doubles{1.0}, bound).is_equal());
  EXPECT_FALSE(compare_bf16_within({"h1"}, Words{0x3F80}, Doubles{kNanOfDouble}, bound).is_equal());
  EXPECT_TRUE(compare_bf16_within({"h1"}, Words{0x7F80}, Doubles{1e39}, bound).is_equal());
  EXPECT_FALSE(compare_bf16_within({"h1"}, Words{0xFF80}, Doubles{1e39}, bound).is_equal());
  EXPECT_FALSE(compare_bf16_within({"h1"}, Words{0x7F80}, Doubles{1e38}, bound).is_equal());
  EXPECT_TRUE(compare_bf16_within({"h1"}, Words{0x7F7F}, Doubles{1e39}, bound).is_equal());
}

TEST(WithinBound, TakesNumbersOfFp32) {
  const std::vector<float> got{1.0F, 1.0F};
  EXPECT_TRUE(compare_f32_within({"d"}, got, Doubles{1.5, 1.0}, Doubles{0.5, 0.0}).is_equal());
  const Comparison result = compare_f32_within({"d"}, got, Doubles{1.5, 1.5}, Doubles{1.0, 0.25});
  EXPECT_EQ(result.differing, 1);
  EXPECT_EQ(result.worst_ratio, 2.0);
  EXPECT_EQ(result.message,
            "d: 1 of 2 elements differ, the first at row 1, column 0: got 0x3F800000 (1), wanted "
            "1.5 within 0.25");
  const std::vector<float> nan{std::numeric_limits<float>::quiet_NaN()};
  EXPECT_FALSE(compare_f32_within({"d"}, nan, Doubles{1.0}, Doubles{1e30}).is_equal());
  EXPECT_TRUE(compare_f32_within({"d"}, nan, Doubles{NAN}, Doubles{NAN}).is_equal());
  const std::vector<float> infinite{std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(compare_f32_within({"d"}, infinite, Doubles{1e39}, Doubles{1.0}).is_equal());
  EXPECT_FALSE(compare_f32_within({"d"}, infinite, Doubles{1e38}, Doubles{1.0}).is_equal());
  EXPECT_FALSE(compare_f32_within({"d"}, infinite, Doubles{-1e39}, Doubles{1.0}).is_equal());
}

TEST(CosineSimilarity, IsOneForParallelAndForZeroVectors) {
  EXPECT_DOUBLE_EQ(cosine_similarity(Doubles{1, 2}, Doubles{2, 4}), 1.0);
  EXPECT_EQ(cosine_similarity(Doubles{1, 0}, Doubles{0, 1}), 0.0);
  EXPECT_EQ(cosine_similarity(Doubles{0, 0}, Doubles{0, 0}), 1.0);
}

}  // namespace
}  // namespace moejit::testing
