// SPDX-License-Identifier: Apache-2.0
// Layers whose experts have one scale each, of the values of this step: every tensor against the
// CPU reference as in layer_test.cpp and backward_test.cpp, the scales by hand, and the whole
// against a layer without intermediate rounding.
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "runtime/reference/scales.h"
#include "tests/gpu/layer_checks.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/edge_cases.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"
#include "tests/support/reference_layer.h"

#include <cfloat>
#include <cmath>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::Pass;
using compiler::Recompute;
using reference::Fp8Format;
using reference::LayerInputs;
using reference::LayerShape;

constexpr int64_t kMaxTokens = 192;

class CurrentScalingLayer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  }

  void make(const LayerShape& shape, const LayerInputs& inputs, TestLayer::Options options) {
    options.max_tokens = std::max(kMaxTokens, inputs.tokens);
    options.recipe = compiler::Recipe::kFp8Current;
    auto layer = TestLayer::create(shape, options);
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    ASSERT_TRUE(succeeded(layer_->set_weights(inputs)));
    ASSERT_TRUE(succeeded(layer_->run(inputs)));
    if (!options.has_backward) return;
    dy_ = reference::random_activations(inputs.tokens, shape.hidden, 77);
    ASSERT_TRUE(succeeded(layer_->set_gradient(dy_)));
    ASSERT_TRUE(succeeded(layer_->set_weight_gradients(3.0F)));
  }
  void backward(GradientMode mode = GradientMode::kOverwrite) {
    ASSERT_TRUE(succeeded(layer_->backward(mode)));
    ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
  }
  std::vector<std::vector<std::byte>> gradients() {
    std::vector<std::vector<std::byte>> all;
    for (const std::string_view name : {"dx", "dprobs", "dw1", "dw2"})
      all.push_back(layer_->read<std::byte>(name));
    return all;
  }
  std::vector<double> doubles(std::string_view name) {
    const std::vector<float> values = layer_->read<float>(name);
    return {values.begin(), values.end()};
  }
  std::vector<double> doubles_of_bf16(std::string_view name) {
    std::vector<double> values;
    for (const uint16_t bits : layer_->read<uint16_t>(name))
      values.push_back(reference::float_from_bf16(bits));
    return values;
  }

  std::unique_ptr<TestLayer> layer_;
  std::vector<uint16_t> dy_;
};

class CurrentScalingCases : public CurrentScalingLayer,
                            public ::testing::WithParamInterface<std::string> {};

TEST_P(CurrentScalingCases, MatchTheReferenceInEveryTensorOfBothPasses) {
  auto edge = edge_case(GetParam());
  ASSERT_TRUE(edge);
  ASSERT_NO_FATAL_FAILURE(make(edge->shape, edge->inputs, {.has_backward = true}));
  ASSERT_NO_FATAL_FAILURE(backward());
  expect_reference(*layer_, edge->inputs, dy_);
}

INSTANTIATE_TEST_SUITE_P(EdgeCases, CurrentScalingCases, ::testing::ValuesIn(edge_case_names()),
                         [](const auto& test) { return test.param; });

constexpr LayerShape kShape{
    .experts = 4, .top_k = 2, .hidden = 272, .intermediate = 144, .alignment = 16, .max_rows = 640};

// The rows of expert 0 and no others decide on its scale: here by hand.
TEST_F(CurrentScalingLayer, FindsScalesOfWhatExpertsSee) {
  LayerInputs inputs = reference::random_inputs(kShape, 4, 5);
  std::ranges::fill(inputs.x, reference::bf16_from_float(0.5F));
  const auto set = [&](int64_t token, float value) {
    inputs.x[static_cast<size_t>(token * kShape.hidden + 7)] = reference::bf16_from_float(value);
  };
  set(0, -3.0F);
  set(1, 7.0F);
  for (int64_t i = 0; i < kShape.hidden; ++i)  // 448 over it overflows
    inputs.x[static_cast<size_t>(2 * kShape.hidden + i)] = reference::bf16_from_float(0x1p-130F);
  set(3, 100.0F);
  inputs.topk_ids = {0, 1, 1, -1, 2, -1, -1, 2};  // token 3 has probability 0 with expert 2
  inputs.topk_probs = {0.5F, 0.5F, 1.0F, 0.0F, 1.0F, 0.0F, 0.0F, 0.0F};
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {}));
  const float third = 448.0F / 3.0F;
  EXPECT_EQ(layer_->read<float>("permuted_scale"),
            (std::vector<float>{third, 64.0F, FLT_MAX, 1.0F}));
  EXPECT_EQ(layer_->read<float>("permuted_scale_inv"),
            (std::vector<float>{1.0F / third, 0x1p-6F, 0x1p-128F, 1.0F}));
  EXPECT_EQ(layer_->read<uint8_t>("permuted_q", 8)[7], 0xFE);  // -3 is the largest: -448
}

TEST_F(CurrentScalingLayer, HasPowersOfTwoOnRequest) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 6);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.has_backward = true, .power_of_2_scales = true}));
  ASSERT_NO_FATAL_FAILURE(backward());
  expect_reference(*layer_, inputs, dy_);
  for (const std::string_view name :
       {"w1_scale", "w2_scale", "permuted_scale", "act_scale", "grad_permuted_scale", "dh1_scale"})
    for (const float scale : layer_->read<float>(name)) {
      int exponent = 0;
      EXPECT_EQ(std::frexp(scale, &exponent), 0.5F) << name << " " << scale;
    }
}

// Gate and up of a weight share a scale, whatever the layout; bf16 weight gradients; no gate.
TEST_F(CurrentScalingLayer, MatchesTheReferenceInOtherLayouts) {
  LayerShape shape = kShape;
  shape.is_interleaved = true;
  LayerInputs inputs = reference::random_inputs(shape, 96, 7);
  ASSERT_NO_FATAL_FAILURE(make(shape, inputs,
                               {.has_backward = true,
                                .wgrad_dtype = compiler::WgradDtype::kBf16,
                                .gate_up_layout = compiler::GateUpLayout::kInterleaved,
                                .topk_probs_dtype = compiler::TopkProbsDtype::kBf16}));
  ASSERT_TRUE(succeeded(layer_->backward(GradientMode::kOverwrite)));
  ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
  for (float& prob : inputs.topk_probs)
    prob = reference::float_from_bf16(reference::bf16_from_float(prob));
  expect_reference(*layer_, inputs, dy_);
}

TEST_F(CurrentScalingLayer, IsComparedInEveryTensor) {
  const LayerInputs inputs = reference::random_inputs(kShape, 80, 8);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.has_backward = true}));
  ASSERT_NO_FATAL_FAILURE(backward());
  EXPECT_EQ(unseen_damage(*layer_, inputs, dy_, {Pass::kForward, Pass::kBackward}),
            std::vector<std::string>{});
}

TEST_F(CurrentScalingLayer, AddsExactlyWhatItWouldWrite) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 5);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.has_backward = true}));
  ASSERT_NO_FATAL_FAILURE(backward());
  const std::vector<float> dw1 = layer_->read<float>("dw1"), dw2 = layer_->read<float>("dw2");
  constexpr float kOld = 0.75F;
  ASSERT_TRUE(succeeded(layer_->set_weight_gradients(kOld)));
  ASSERT_NO_FATAL_FAILURE(backward(GradientMode::kAdd));
  const auto with_old = [](std::vector<float> values) {
    for (float& value : values) value += kOld;
    return values;
  };
  EXPECT_TRUE(matches(compare_f32({"dw1", 272}, layer_->read<float>("dw1"), with_old(dw1))));
  EXPECT_TRUE(matches(compare_f32({"dw2", 144}, layer_->read<float>("dw2"), with_old(dw2))));
}

TEST_F(CurrentScalingLayer, GivesTheSameBitsWithRecomputationInHalvesAndInSharedWorkspace) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 6);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.has_backward = true}));
  ASSERT_NO_FATAL_FAILURE(backward());
  const auto wanted = gradients();
  for (const Recompute recompute : {Recompute::kNone, Recompute::kMoeExpert})
    for (const bool halves : {false, true}) {
      ASSERT_NO_FATAL_FAILURE(make(kShape, inputs,
                                   {.keep_intermediates = false,
                                    .has_backward = true,
                                    .recompute = recompute,
                                    .backward_halves = halves}));
      ASSERT_TRUE(succeeded(layer_->poison()));  // forward's workspace is nobody's any more
      if (halves) {
        ASSERT_TRUE(succeeded(layer_->backward_data()));
        ASSERT_TRUE(succeeded(layer_->backward_weights(GradientMode::kOverwrite)));
        ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
      } else {
        ASSERT_NO_FATAL_FAILURE(backward());
      }
      EXPECT_EQ(gradients(), wanted);
      EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
    }
}

// An e4m3 value is off by up to 2^-4 of itself, in the mean square 2.6 %, an e5m2 one by twice
// that; small values that share a scale with large ones lose more. The longest way is that to dw1.
TEST_F(CurrentScalingLayer, PointsWhereTheLayerWithoutRoundingPoints) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 8);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.has_backward = true}));
  ASSERT_NO_FATAL_FAILURE(backward());
  const reference::UnquantizedGradients wanted =
      reference::unquantized_backward(kShape, inputs, dy_);
  EXPECT_GE(cosine_similarity(doubles_of_bf16("y"), reference::unquantized_forward(kShape, inputs)),
            0.99);
  EXPECT_GE(cosine_similarity(doubles_of_bf16("dx"), wanted.dx), 0.98);
  EXPECT_GE(cosine_similarity(doubles("dw1"), wanted.dw1), 0.98);
  EXPECT_GE(cosine_similarity(doubles("dw2"), wanted.dw2), 0.98);
  EXPECT_GE(cosine_similarity(doubles("dprobs"), wanted.dprobs), 0.98);
  // Neither is it off by a factor.
  const auto square = [](const std::vector<double>& values) {
    double sum = 0.0;
    for (const double value : values) sum += value * value;
    return sum;
  };
  EXPECT_NEAR(square(doubles_of_bf16("dx")) / square(wanted.dx), 1.0, 0.1);
  EXPECT_NEAR(square(doubles("dw1")) / square(wanted.dw1), 1.0, 0.1);
  EXPECT_NEAR(square(doubles("dw2")) / square(wanted.dw2), 1.0, 0.1);
}

// Groups whose last one a rank of few tokens leaves empty, and gradients that nobody asks for.
TEST_F(CurrentScalingLayer, ComputesSomeGradientsAlone) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 9);
  using enum compiler::Gradient;
  for (const std::vector<compiler::Gradient>& some :
       {std::vector{kDx}, std::vector{kDprobs}, std::vector{kDw1}, std::vector{kDw2, kDprobs}}) {
    ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.has_backward = true, .gradients = some}));
    ASSERT_NO_FATAL_FAILURE(backward());
    expect_reference(*layer_, inputs, dy_);
  }
}

}  // namespace
}  // namespace moejit::testing
