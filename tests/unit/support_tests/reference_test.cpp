// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/number_formats.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"
#include "tests/support/reference_layer.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moejit::reference {
namespace {

using moejit::testing::compare_bf16;
using moejit::testing::cosine_similarity;
using moejit::testing::matches;

std::vector<double> doubles_from_bf16(const std::vector<std::uint16_t>& values) {
  std::vector<double> result;
  for (const std::uint16_t value : values) result.push_back(float_from_bf16(value));
  return result;
}

// H = I = 16, one expert, weights that make every step a number one can follow.
TEST(ReferenceForward, MatchesALayerComputedByHand) {
  const LayerShape shape{
      .experts = 1, .top_k = 1, .hidden = 16, .intermediate = 16, .alignment = 2, .max_rows = 2};
  LayerInputs inputs;
  inputs.tokens = 1;
  inputs.x.assign(16, 0);
  inputs.x[0] = bf16_from_float(16.0F);
  inputs.x[1] = bf16_from_float(3.0F);
  inputs.topk_ids = {0};
  inputs.topk_probs = {0.0078125F};  // 2^-7
  inputs.w1.assign(32 * 16, 0);
  inputs.w1[0] = bf16_from_float(8.0F);             // gate 0 = 8 * x[0] = 128
  inputs.w1[16 * 16 + 1] = bf16_from_float(-1.0F);  // up 0 = -x[1] = -3
  inputs.w2.assign(16 * 16, 0);
  inputs.w2[2 * 16] = bf16_from_float(5.0F);  // y[2] = 5 * activation 0

  const ReferenceForward forward = reference_forward(shape, inputs);

  EXPECT_EQ(forward.x_scale_inv, (std::vector<float>{0x1p-4F}));  // 16 * 16 = 256 <= 448
  EXPECT_EQ(decode_e4m3(forward.x_q[0]), 256.0F);
  EXPECT_EQ(forward.offs, (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(forward.permuted_probs, (std::vector<float>{0.0078125F, 0.0F}));
  EXPECT_EQ(forward.w1_scale_inv, (std::vector<float>{0x1p-5F, 0x1p-8F}));
  EXPECT_EQ(float_from_bf16(forward.h1[0]), 128.0F);
  EXPECT_EQ(float_from_bf16(forward.h1[16]), -3.0F);
  EXPECT_EQ(forward.h1[32], 0);  // the pad row
  // 128 * 1 * -3 * 2^-7 = -3, scaled by 128: -384.
  EXPECT_EQ(decode_e4m3(forward.act_q[0]), -384.0F);
  EXPECT_EQ(forward.act_scale_inv, (std::vector<float>{0x1p-7F, 0.0F}));
  EXPECT_EQ(float_from_bf16(forward.h2[2]), -15.0F);
  EXPECT_EQ(float_from_bf16(forward.y[2]), -15.0F);
  EXPECT_EQ(forward.y[0], 0);
}

TEST(ReferenceForward, IsExactOnExactInputs) {
  const LayerShape shape{.experts = 3,
                         .top_k = 2,
                         .hidden = 272,
                         .intermediate = 144,
                         .alignment = 16,
                         .max_rows = 128};
  const LayerInputs inputs = exact_inputs(shape, 24, 1);
  const ReferenceForward forward = reference_forward(shape, inputs);

  // Computed without any quantization: h2 of a row is an integer that bf16 rounds, then y is the
  // sum of at most two such numbers. Where h2 is below 256 nothing is rounded at all.
  const std::vector<double> wanted = unquantized_forward(shape, inputs);
  std::int64_t exact = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double got = float_from_bf16(forward.y[i]);
    EXPECT_NEAR(got, wanted[i], 0x1p-7 * std::fabs(wanted[i]) + 4.0);
    if (got == wanted[i]) ++exact;
  }
  EXPECT_GT(exact, static_cast<std::int64_t>(wanted.size()) * 9 / 10);
}

TEST(ReferenceForward, IsCloseToTheUnquantizedLayer) {
  const LayerShape shape{.experts = 4,
                         .top_k = 2,
                         .hidden = 256,
                         .intermediate = 272,
                         .alignment = 16,
                         .max_rows = 256};
  const LayerInputs inputs = random_inputs(shape, 32, 2);
  const ReferenceForward forward = reference_forward(shape, inputs);
  const std::vector<double> y = doubles_from_bf16(forward.y);
  // Three mantissa bits leave about 2.6 % of noise per factor, so roughly 4 to 5 % in y.
  EXPECT_GT(cosine_similarity(y, unquantized_forward(shape, inputs)), 0.997);
}

TEST(ReferenceForward, UsesWeightsThatComeQuantizedAsTheyAre) {
  const LayerShape shape{
      .experts = 2, .top_k = 1, .hidden = 144, .intermediate = 16, .alignment = 1, .max_rows = 8};
  const LayerInputs inputs = random_inputs(shape, 8, 3);
  LayerInputs quantized = inputs;
  quantized.w1_quantized = quantize_128x128(inputs.w1, 2, 32, 144, 2);
  quantized.w2_quantized = quantize_128x128(inputs.w2, 2, 144, 16, 1);
  quantized.w1.clear();
  quantized.w2.clear();
  EXPECT_TRUE(matches(compare_bf16({"y", 144}, reference_forward(shape, quantized).y,
                                   reference_forward(shape, inputs).y)));
}

TEST(ReferenceForward, ATokenDoesNotDependOnTheOthers) {
  const LayerShape shape{.experts = 4,
                         .top_k = 2,
                         .hidden = 144,
                         .intermediate = 144,
                         .alignment = 16,
                         .max_rows = 256};
  const LayerInputs inputs = random_inputs(shape, 16, 4);
  LayerInputs others = random_inputs(shape, 16, 5);
  others.w1 = inputs.w1;
  others.w2 = inputs.w2;
  std::copy_n(inputs.x.begin() + 7 * 144, 144, others.x.begin() + 7 * 144);
  std::copy_n(inputs.topk_ids.begin() + 14, 2, others.topk_ids.begin() + 14);
  std::copy_n(inputs.topk_probs.begin() + 14, 2, others.topk_probs.begin() + 14);

  const std::vector<std::uint16_t> y = reference_forward(shape, inputs).y;
  const std::vector<std::uint16_t> other_y = reference_forward(shape, others).y;
  EXPECT_TRUE(std::equal(y.begin() + 7 * 144, y.begin() + 8 * 144, other_y.begin() + 7 * 144));
  EXPECT_NE(y, other_y);
}

}  // namespace
}  // namespace moejit::reference
