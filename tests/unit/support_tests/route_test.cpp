// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/route.h"

#include "runtime/reference/number_formats.h"

#include <gtest/gtest.h>
#include <limits>

namespace moejit::reference {
namespace {

using Ids = std::vector<std::int32_t>;

LayerShape shape_of(std::int64_t experts, std::int64_t top_k, std::int64_t alignment,
                    std::int64_t max_rows) {
  return {.experts = experts, .top_k = top_k, .alignment = alignment, .max_rows = max_rows};
}

// Tokens to experts: {0, 1}, {0, 2}, {2}, {0, 1}, none.
const Ids kFiveTokens{0, 1, 2, 0, -1, 2, 1, 0, -1, -1};

TEST(Route, OrdersByExpertThenTokenThenK) {
  const Route result = route(kFiveTokens, 5, shape_of(3, 2, 1, 10));
  EXPECT_EQ(result.counts, (Ids{3, 2, 2}));
  EXPECT_EQ(result.offs, (Ids{0, 3, 5, 7}));
  EXPECT_EQ(result.row_map, (Ids{0, 3, 5, 1, -1, 6, 4, 2, -1, -1}));
  EXPECT_EQ(result.status, 0U);
}

TEST(RouteMap, OrdersByExpertThenTokenAndKeepsTheFirstExpertsOfAToken) {
  const std::vector<uint8_t> map = {0, 1, 0,   1,  //
                                    0, 0, 0,   0,  //
                                    5, 1, 255, 1};
  const Route routed = route_map(map, 3, shape_of(4, 3, 1, 12));
  EXPECT_EQ(routed.counts, (Ids{1, 2, 1, 1}));
  EXPECT_EQ(routed.row_map, (Ids{1, 4, -1, -1, -1, -1, 0, 2, 3}));
  EXPECT_EQ(routed.status, kTooManyExperts);
  EXPECT_EQ(route_map(map, 3, shape_of(4, 4, 1, 12)).status, 0U);
}

TEST(Route, StartsEveryExpertAtTheAlignment) {
  const Route result = route(kFiveTokens, 5, shape_of(3, 2, 4, 12));
  EXPECT_EQ(result.counts, (Ids{3, 2, 2}));
  EXPECT_EQ(result.offs, (Ids{0, 4, 8, 12}));
  EXPECT_EQ(result.row_map, (Ids{0, 4, 8, 1, -1, 9, 5, 2, -1, -1}));
  EXPECT_EQ(result.status, 0U);
  EXPECT_EQ(real_rows(result), (std::vector<std::uint8_t>{1, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0}));
}

TEST(Route, GivesADuplicatedExpertTwoRowsInTheOrderOfK) {
  const Route result = route(Ids{1, 0, 1, 1}, 1, shape_of(2, 4, 1, 4));
  EXPECT_EQ(result.row_map, (Ids{1, 0, 2, 3}));
  EXPECT_EQ(result.counts, (Ids{1, 3}));
}

TEST(Route, KeepsEmptyExpertsWithoutRows) {
  const Route result = route(Ids{1, 3}, 2, shape_of(5, 1, 16, 96));
  EXPECT_EQ(result.counts, (Ids{0, 1, 0, 1, 0}));
  EXPECT_EQ(result.offs, (Ids{0, 0, 16, 16, 32, 32}));
}

TEST(Route, TakesABadIdForNotRoutedAndSaysSo) {
  const std::int32_t lowest = std::numeric_limits<std::int32_t>::min();
  const std::int32_t highest = std::numeric_limits<std::int32_t>::max();
  const Route result = route(Ids{-2, 0, 2, lowest, highest, 1}, 6, shape_of(2, 1, 1, 6));
  EXPECT_EQ(result.row_map, (Ids{-1, 0, -1, -1, -1, 1}));
  EXPECT_EQ(result.status, kBadExpertId);
}

TEST(Route, TakesAnIdOf64BitsForWhatItIs) {
  const std::int64_t expert_in_low_word = std::int64_t{1} << 32;  // its low 32 bits are expert 0
  const std::vector<std::int64_t> ids{1, expert_in_low_word, -expert_in_low_word, -1};
  const Route result = route(ids, 4, shape_of(2, 1, 1, 4));
  EXPECT_EQ(result.row_map, (Ids{0, -1, -1, -1}));
  EXPECT_EQ(result.status, kBadExpertId);
}

TEST(Route, IgnoresForeignExpertsButNotBadIds) {
  LayerShape shape = shape_of(2, 1, 1, 4);
  shape.ignores_foreign = true;
  const Route ignored = route(Ids{1, 2, 1000, -1}, 4, shape);
  EXPECT_EQ(ignored.row_map, (Ids{0, -1, -1, -1}));
  EXPECT_EQ(ignored.status, 0U);
  EXPECT_EQ(route(Ids{1, 2, -2, -1}, 4, shape).status, kBadExpertId);
}

TEST(Route, DropsRowsBeyondTheBoundAndCutsCountsAndOffs) {
  // Unbounded: counts 3, 3; offs 0, 4, 8.
  const Route result = route(Ids{0, 1, 0, 1, 0, 1}, 6, shape_of(2, 1, 4, 6));
  EXPECT_EQ(result.row_map, (Ids{0, 4, 1, 5, 2, -1}));
  EXPECT_EQ(result.counts, (Ids{3, 2}));
  EXPECT_EQ(result.offs, (Ids{0, 4, 6}));
  EXPECT_EQ(result.status, kRowOverflow);
}

TEST(Route, CutsPadRowsWithoutComplaint) {
  const Route result = route(Ids{0, 0, 0}, 3, shape_of(1, 1, 4, 3));
  EXPECT_EQ(result.offs, (Ids{0, 3}));
  EXPECT_EQ(result.counts, (Ids{3}));
  EXPECT_EQ(result.status, 0U);
}

TEST(Route, LeavesExpertsBehindTheBoundEmpty) {
  const Route result = route(Ids{0, 1, 2, 2}, 4, shape_of(3, 1, 16, 16));
  EXPECT_EQ(result.counts, (Ids{1, 0, 0}));
  EXPECT_EQ(result.offs, (Ids{0, 16, 16, 16}));
  EXPECT_EQ(result.row_map, (Ids{0, -1, -1, -1}));
  EXPECT_EQ(result.status, kRowOverflow);
}

TEST(Route, NoTokensGiveNoRows) {
  const Route result = route(Ids{}, 0, shape_of(3, 2, 128, 384));
  EXPECT_EQ(result.offs, (Ids{0, 0, 0, 0}));
  EXPECT_EQ(result.rows(), 0);
}

TEST(EnoughRows, HoldsTheWorstRouting) {
  // Two tokens, top 2, three experts: worst at alignment 16 is four rows in three experts.
  EXPECT_GE(enough_rows(2, shape_of(3, 2, 16, 0)), 48);
  EXPECT_EQ(enough_rows(7, shape_of(3, 2, 1, 0)), 14);
}

TEST(PermutePad, CopiesRowsScalesAndProbabilities) {
  const QuantizedRows x{2, 2, {0x11, 0x12, 0x21, 0x22}, {0.5F, 0.25F}};
  const std::vector<float> probs{0.1F, 0.2F, 0.3F, 0.4F};
  const Route routed = route(Ids{1, 0, 1, -1}, 2, shape_of(2, 2, 2, 8));

  const PermutedRows result = permute_pad(x, probs, routed, 2);

  // Rows: token 0 (expert 0), pad, token 0 (expert 1), token 1 (expert 1).
  EXPECT_EQ(result.data.rows, 4);
  EXPECT_EQ(result.data.q, (std::vector<std::uint8_t>{0x11, 0x12, 0, 0, 0x11, 0x12, 0x21, 0x22}));
  EXPECT_EQ(result.data.scale_inv, (std::vector<float>{0.5F, 0.0F, 0.5F, 0.25F}));
  EXPECT_EQ(result.probs, (std::vector<float>{0.2F, 0.0F, 0.1F, 0.3F}));
}

TEST(PermutePad, ZeroesTheDataOfAZeroProbabilityButKeepsTheScale) {
  const QuantizedRows x{2, 1, {0x38, 0x38}, {2.0F, 4.0F}};
  const std::vector<float> probs{0.0F, -0.0F};
  const Route routed = route(Ids{0, 0}, 2, shape_of(1, 1, 1, 2));

  const PermutedRows result = permute_pad(x, probs, routed, 1);

  EXPECT_EQ(result.data.q, (std::vector<std::uint8_t>{0, 0}));
  EXPECT_EQ(result.data.scale_inv, (std::vector<float>{2.0F, 4.0F}));
}

TEST(Unpermute, AddsDescendingRowsInFp32) {
  // From the last row down: (2^24 + 1) rounds to 2^24, and -2^24 leaves 0. Ascending leaves 1.
  const std::vector<std::uint16_t> h2{bf16_from_float(-0x1p24F), bf16_from_float(1.0F),
                                      bf16_from_float(0x1p24F)};
  EXPECT_EQ(unpermute(h2, Ids{1, 0, 2}, 1, 3, 1), (std::vector<std::uint16_t>{0}));
}

TEST(Unpermute, GivesZeroForTokensWithoutRowsAndRoundsOnce) {
  const std::vector<std::uint16_t> h2{bf16_from_float(1.0F), bf16_from_float(0x1p-8F)};
  // 1 + 2^-8 is a tie of bf16 and goes to the even 1.
  EXPECT_EQ(unpermute(h2, Ids{-1, -1, 0, 1}, 2, 2, 1), (std::vector<std::uint16_t>{0, 0x3F80}));
}

TEST(Unpermute, TurnsNegativeZeroIntoZeroBecauseTheSumStartsAtZero) {
  EXPECT_EQ(unpermute(std::vector<std::uint16_t>{0x8000}, Ids{0}, 1, 1, 1),
            (std::vector<std::uint16_t>{0}));
}

}  // namespace
}  // namespace moejit::reference
