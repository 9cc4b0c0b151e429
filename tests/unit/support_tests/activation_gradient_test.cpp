// SPDX-License-Identifier: Apache-2.0
#include "runtime/reference/activation.h"
#include "runtime/reference/number_formats.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moejit::reference {
namespace {

// One element in double, straight from the definition of the activation.
double activated(double gate, double up, double prob) {
  return gate / (1.0 + std::exp(-gate)) * up * prob;
}

struct Gradients {
  double gate, up, prob;
};

Gradients gradients_of(float gate, float up, float prob, float gradient) {
  const std::vector<std::uint16_t> h1{bf16_from_float(gate), bf16_from_float(up)};
  const std::vector<std::uint16_t> dact{bf16_from_float(gradient)};
  const ActivationGradients result = activation_backward(h1, dact, std::vector<float>{prob}, 1, 1);
  return {result.gate[0], result.up[0], result.dprobs_blocks[0]};
}

// Central differences of step h are off by h^2 / 6 times the third derivative, below 1 for these
// arguments, and by 2^-52 / h: together below 1e-9 for h = 2^-15. The reference rounds its sigmoid
// and its results to 2^-24.
TEST(SwigluBackward, IsTheDerivativeOfTheActivation) {
  constexpr double kStep = 0x1p-15;
  const auto slope = [](auto value_at) {
    return (value_at(kStep) - value_at(-kStep)) / (2 * kStep);
  };
  for (const float gate : {-6.0F, -1.28125F, -0.5F, 0.0F, 0.25F, 1.0F, 3.5F, 9.0F}) {
    for (const float up : {-1.5F, 0.125F, 2.0F}) {
      const float prob = 0.75F, gradient = -0.625F;
      SCOPED_TRACE(::testing::Message() << "gate " << gate << ", up " << up);
      const Gradients got = gradients_of(gate, up, prob, gradient);
      const double of_gate = slope([&](double h) { return activated(gate + h, up, prob); });
      const double of_up = slope([&](double h) { return activated(gate, up + h, prob); });
      const double of_prob = slope([&](double h) { return activated(gate, up, prob + h); });
      EXPECT_NEAR(got.gate, gradient * of_gate, 1e-6);
      EXPECT_NEAR(got.up, gradient * of_up, 1e-6 * (1 + std::fabs(gate)));
      EXPECT_NEAR(got.prob, gradient * of_prob, 1e-8 * (1 + std::fabs(gate)));
    }
  }
}

TEST(SwigluBackward, IsExactWhereTheSigmoidIs) {
  const Gradients at_zero = gradients_of(0.0F, 3.0F, 0.25F, 2.0F);
  EXPECT_EQ(at_zero.gate, 0.75);  // 2 * 1/2 * 3 * 1/4
  EXPECT_EQ(at_zero.up, 0.0);
  EXPECT_EQ(at_zero.prob, 0.0);
  const Gradients at_large = gradients_of(128.0F, 3.0F, 0.25F, 2.0F);
  EXPECT_EQ(at_large.gate, 1.5);  // 2 * 1 * 3 * 1/4
  EXPECT_EQ(at_large.up, 64.0);   // 2 * 128 * 1/4
  EXPECT_EQ(at_large.prob, 768.0);
  EXPECT_EQ(gradients_of(-128.0F, 3.0F, 0.25F, 2.0F).gate, 0.0);
}

// Where it does not depend on the probability, which may be 0.
TEST(SwigluBackward, GivesTheProbabilityItsGradientWithoutTheProbability) {
  EXPECT_EQ(gradients_of(128.0F, 3.0F, 0.0F, 2.0F).prob, 768.0);
  EXPECT_EQ(gradients_of(128.0F, 3.0F, 0.0F, 2.0F).up, 0.0);
}

TEST(SwigluBackward, AddsEachBlockOfColumnsOnItsOwn) {
  constexpr std::int64_t kColumns = 144;
  std::vector<std::uint16_t> h1(2 * kColumns, bf16_from_float(128.0F));
  const std::vector<std::uint16_t> dact(kColumns, bf16_from_float(0x1p-14F));
  const ActivationGradients result =
      activation_backward(h1, dact, std::vector<float>{1.0F}, 1, kColumns);
  EXPECT_EQ(result.dprobs_blocks, (std::vector<double>{128.0, 16.0}));
  // Each of 19 additions may lose 2^-23, each product (1 + 128 / 12) * 2^-20 + 2^-23 of itself.
  EXPECT_NEAR(result.dprobs_bounds[1] / 16.0, 11.67 * 0x1p-20 + 20 * 0x1p-23, 0x1p-24);
}

TEST(ActivationBackwardQuantize, PutsGateBeforeUpAndLeavesPadRowsZero) {
  constexpr std::int64_t kColumns = 144;
  const Route route{.counts = {1}, .offs = {0, 2}};
  std::vector<std::uint16_t> h1(2 * 2 * kColumns, bf16_from_float(128.0F));
  for (std::int64_t i = 0; i < kColumns; ++i) h1[kColumns + i] = bf16_from_float(7.0F);
  const std::vector<std::uint16_t> dact(2 * kColumns, bf16_from_float(1.0F));
  const auto result =
      activation_backward_quantize(h1, dact, std::vector<float>{1.0F, 1.0F}, route, kColumns);
  // Gate's is 7 = 448 * 2^-6, up's 128 = 256 * 2^-1.
  EXPECT_EQ(result.scale_inv,
            (std::vector<float>{0x1p-6F, 0x1p-6F, 0x1p-1F, 0x1p-1F, 0.0F, 0.0F, 0.0F, 0.0F}));
  EXPECT_EQ(result.q[0], encode_e4m3(448.0F));
  EXPECT_EQ(result.q[kColumns], encode_e4m3(256.0F));
  EXPECT_EQ(result.q[2 * kColumns], 0);
  EXPECT_EQ(result.dprobs_blocks, (std::vector<double>{128.0 * 7 * 128, 128.0 * 7 * 16, 0.0, 0.0}));
  EXPECT_EQ(result.dprobs_bounds[2], 0.0);
}

}  // namespace
}  // namespace moejit::reference
