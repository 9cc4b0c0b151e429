// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/activation.h"

#include "runtime/reference/number_formats.h"
#include "tests/unit/support_tests/one_expert.h"
#include "tests/unit/support_tests/special_floats.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moejit::reference {
namespace {

float swiglu_of(float gate, float up, float prob) {
  const std::vector<std::uint16_t> h1{bf16_from_float(gate), bf16_from_float(up)};
  return activate(h1, std::vector<float>{prob}, 1, 1, swiglu_activation())[0];
}

TEST(Swiglu, IsExactWhereTheSigmoidIs) {
  EXPECT_EQ(swiglu_of(0.0F, 5.0F, 1.0F), 0.0F);
  EXPECT_EQ(swiglu_of(128.0F, 3.0F, 0x1p-7F), 3.0F);
  EXPECT_EQ(swiglu_of(-128.0F, 3.0F, 1.0F), 0.0F);
  EXPECT_TRUE(std::signbit(swiglu_of(-128.0F, 3.0F, 1.0F)));
}

TEST(Swiglu, RoundsAfterEveryOperation) {
  // sigmoid(1) = 0.731058578630... = 0x3F3B26A8; times 3, then times 0.3F, both rounded.
  const float sigmoid = float_of_bits(0x3F3B26A8);
  const float once = sigmoid * 3.0F;
  EXPECT_EQ(swiglu_of(1.0F, 3.0F, 0.3F), once * 0.3F);
}

TEST(Swiglu, TakesTheGateFromTheFirstHalf) {
  const std::vector<std::uint16_t> h1{bf16_from_float(128.0F), bf16_from_float(256.0F),
                                      bf16_from_float(1.0F), bf16_from_float(-2.0F)};
  EXPECT_EQ(activate(h1, std::vector<float>{1.0F}, 1, 2, swiglu_activation()),
            (std::vector<float>{128.0F, -512.0F}));
}

TEST(Swiglu, ANegativeInfiniteGateGivesNan) {
  EXPECT_TRUE(std::isnan(swiglu_of(-kInf, 1.0F, 1.0F)));
}

TEST(QuantizeActivation, StepsTheScaleAbove448) {
  const float above = std::nextafter(448.0F, kInf);
  const QuantizedRows result =
      quantize_activation(std::vector<float>{448.0F, above, 447.0F}, one_expert(3), 1);
  EXPECT_EQ(result.scale_inv, (std::vector<float>{1.0F, 2.0F, 1.0F}));
  EXPECT_EQ(result.q, (std::vector<std::uint8_t>{0x7E, 0x76, 0x7E}));
}

TEST(QuantizeActivation, RowsOfZerosUseEpsAndPadRowsUseZero) {
  const QuantizedRows result =
      quantize_activation(std::vector<float>{0.0F, 0.0F}, one_expert(1, 1), 1);
  EXPECT_EQ(result.scale_inv, (std::vector<float>{0x1p-42F, 0.0F}));
  EXPECT_EQ(result.q, (std::vector<std::uint8_t>{0x00, 0x00}));
}

TEST(QuantizeActivation, PassesOverNanAndSaturatesInf) {
  const std::vector<float> values{kNan, 1.0F, -kInf, 1.0F, kNan, kNan};
  const QuantizedRows result = quantize_activation(values, one_expert(3), 2);
  EXPECT_EQ(result.scale_inv, (std::vector<float>{0x1p-8F, 1.0F, 0x1p-42F}));
  EXPECT_EQ(result.q, (std::vector<std::uint8_t>{0x7F, 0x78, 0xFE, 0x38, 0x7F, 0x7F}));
}

TEST(QuantizeActivation, BlocksAre128WideAndTheLastIsPartial) {
  std::vector<float> values(144, 0.0F);
  values[127] = 448.0F;
  values[128] = 896.0F;
  const QuantizedRows result = quantize_activation(values, one_expert(1), 144);
  EXPECT_EQ(result.scale_inv, (std::vector<float>{1.0F, 2.0F}));
}

TEST(IsNearScaleStep, KnowsTheStepsAndTheirNeighbours) {
  EXPECT_TRUE(is_near_scale_step(448.0F));
  EXPECT_TRUE(is_near_scale_step(std::nextafter(7.0F, kInf)));
  EXPECT_TRUE(is_near_scale_step(std::nextafter(0x1.Cp-30F, 0.0F)));
  EXPECT_FALSE(is_near_scale_step(448.01F));
  EXPECT_FALSE(is_near_scale_step(512.0F));
  EXPECT_FALSE(is_near_scale_step(0.0F));
  EXPECT_FALSE(is_near_scale_step(kInf));
}

}  // namespace
}  // namespace moejit::reference
