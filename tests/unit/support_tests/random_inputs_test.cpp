// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/random_inputs.h"

#include "runtime/reference/number_formats.h"
#include "runtime/reference/quantize.h"
#include "tests/support/layer_inputs.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>

namespace moejit::reference {
namespace {

TEST(RandomStream, GivesTheSameBitsEverywhere) {
  const RandomStream stream(1, 2);
  EXPECT_EQ(stream.bits(0), 0x3E12204644234BB0U);
  EXPECT_EQ(stream.bits(1), 0xFEAB9A052C034D9FU);
}

TEST(RandomStream, DependsOnSeedPurposeAndIndex) {
  const std::set<std::uint64_t> values{RandomStream(1, 1).bits(0), RandomStream(1, 1).bits(1),
                                       RandomStream(1, 2).bits(0), RandomStream(2, 1).bits(0)};
  EXPECT_EQ(values.size(), 4U);
}

TEST(RandomStream, NormalHasMeanZeroAndVarianceOne) {
  const RandomStream stream(3, 4);
  constexpr int kCount = 100000;
  double sum = 0.0, squares = 0.0;
  for (int i = 0; i < kCount; ++i) {
    sum += stream.normal(i);
    squares += stream.normal(i) * stream.normal(i);
  }
  // Five standard deviations of the estimates.
  EXPECT_NEAR(sum / kCount, 0.0, 5.0 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1.0, 5.0 * std::sqrt(2.0 / kCount));
}

TEST(RandomStream, BelowReachesEveryValueAndNoOther) {
  const RandomStream stream(5, 6);
  std::set<std::int64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(stream.below(i, 7));
  EXPECT_EQ(seen, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(RandomRouting, IsSkewedValidAndWithoutRepetition) {
  constexpr std::int64_t kTokens = 500, kExperts = 16, kTopK = 4;
  const std::vector<std::int32_t> ids = random_routing(kTokens, kExperts, kTopK, {7});
  std::vector<std::int64_t> counts(kExperts, 0);
  std::int64_t unrouted = 0;
  for (std::int64_t token = 0; token < kTokens; ++token) {
    std::set<std::int32_t> of_token;
    for (std::int64_t k = 0; k < kTopK; ++k) {
      const std::int32_t id = ids[token * kTopK + k];
      ASSERT_GE(id, -1);
      ASSERT_LT(id, kExperts);
      if (id < 0) {
        ++unrouted;
        continue;
      }
      ++counts[id];
      EXPECT_TRUE(of_token.insert(id).second)
          << "token " << token << " has expert " << id << " twice";
    }
  }
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  EXPECT_GT(*most, 3 * *least);
  EXPECT_NEAR(static_cast<double>(unrouted), 0.125 * kTokens * kTopK, 80.0);
}

TEST(RandomRouting, UsesEveryExpertWhereTopKIsAll) {
  const std::vector<std::int32_t> ids = random_routing(3, 5, 5, {8}, {.unrouted_share = 0.0});
  for (std::int64_t token = 0; token < 3; ++token) {
    const std::set<std::int32_t> of_token(ids.begin() + token * 5, ids.begin() + token * 5 + 5);
    EXPECT_EQ(of_token, (std::set<std::int32_t>{0, 1, 2, 3, 4}));
  }
}

TEST(RandomRouting, RepeatsExpertsWhereAllowed) {
  const std::vector<std::int32_t> ids =
      random_routing(50, 2, 4, {9}, {.unrouted_share = 0.0, .may_repeat = true});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), -1), 0);
}

TEST(RandomProbs, ArePositiveAndSumToOne) {
  const std::vector<float> probs = random_probs(20, 3, 10);
  for (int token = 0; token < 20; ++token) {
    float sum = 0.0F;
    for (int k = 0; k < 3; ++k) {
      EXPECT_GT(probs[token * 3 + k], 0.0F);
      sum += probs[token * 3 + k];
    }
    EXPECT_NEAR(sum, 1.0F, 1e-6F);
  }
}

TEST(RandomActivations, HaveOutliersAndScalesThatDiffer) {
  const QuantizedRows rows = quantize_1x128(random_activations(32, 512, 11), 32, 512);
  const std::set<float> scales(rows.scale_inv.begin(), rows.scale_inv.end());
  EXPECT_GE(scales.size(), 5U);
}

TEST(ExactInputs, AreRepresentedExactlyInFp8) {
  const LayerShape shape{.experts = 2, .top_k = 2, .hidden = 144, .intermediate = 144};
  const LayerInputs inputs = exact_inputs(shape, 5, 12);
  const std::vector<float> x = dequantize(quantize_1x128(inputs.x, 5, 144));
  const std::vector<float> w1 = dequantize(quantize_128x128(inputs.w1, 2, 288, 144, 2));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], float_from_bf16(inputs.x[i]));
  for (std::size_t i = 0; i < w1.size(); ++i) ASSERT_EQ(w1[i], float_from_bf16(inputs.w1[i]));
}

TEST(SpecialActivations, ShowEveryKindOfBlock) {
  const std::vector<std::uint16_t> x = special_activations(kSpecialBlocks, 128, 13);
  const QuantizedRows rows = quantize_1x128(x, kSpecialBlocks, 128);
  const auto row_has = [&](std::int64_t row, std::uint8_t code) {
    return std::count(rows.q.begin() + row * 128, rows.q.begin() + (row + 1) * 128, code) > 0;
  };
  EXPECT_TRUE(row_has(0, 0x7F));
  EXPECT_EQ(rows.scale_inv[1], 0x1p-42F);  // only NaN
  EXPECT_TRUE(row_has(1, 0x7F));
  EXPECT_TRUE(row_has(2, 0x7E));
  EXPECT_EQ(rows.scale_inv[2], 1.0F);  // Inf
  EXPECT_TRUE(row_has(3, 0xFE));
  EXPECT_TRUE(row_has(4, 0x80));           // -0
  EXPECT_EQ(rows.scale_inv[6], 0x1p120F);  // 2^128 / 448, rounded up to a power of two
  EXPECT_EQ(rows.scale_inv[7], 0x1p-42F);
  EXPECT_EQ(rows.scale_inv[9], 1.0F);   // 448
  EXPECT_EQ(rows.scale_inv[10], 1.0F);  // 446
  EXPECT_EQ(rows.scale_inv[11], 2.0F);  // 450
  EXPECT_EQ(rows.scale_inv[12], 4.0F);
  EXPECT_EQ(rows.scale_inv[13], 0x1p-5F);
}

}  // namespace
}  // namespace moejit::reference
