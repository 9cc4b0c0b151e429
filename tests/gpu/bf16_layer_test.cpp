// SPDX-License-Identifier: Apache-2.0
// Layers that quantize nothing, forward and backward: every tensor against the CPU reference as in
// layer_test.cpp and backward_test.cpp, and the whole against a layer without intermediate
// rounding.
#include "runtime/reference/number_formats.h"
#include "runtime/reference/random_inputs.h"
#include "tests/gpu/layer_checks.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/edge_cases.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"
#include "tests/support/reference_layer.h"

#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::Pass;
using compiler::Recompute;
using reference::LayerInputs;
using reference::LayerShape;

constexpr int64_t kMaxTokens = 192;

class Bf16Layer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  }

  void make(const LayerShape& shape, const LayerInputs& inputs, TestLayer::Options options) {
    options.max_tokens = std::max(kMaxTokens, inputs.tokens);
    options.recipe = compiler::Recipe::kBf16;
    auto layer = TestLayer::create(shape, options);
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    shape_ = shape;
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
  LayerShape shape_;
  std::vector<uint16_t> dy_;
};

class Bf16Cases : public Bf16Layer, public ::testing::WithParamInterface<std::string> {};

TEST_P(Bf16Cases, MatchTheReferenceInEveryTensorOfTheForwardPass) {
  auto edge = edge_case(GetParam());
  ASSERT_TRUE(edge);
  ASSERT_NO_FATAL_FAILURE(make(edge->shape, edge->inputs, {}));
  EXPECT_EQ(expect_reference(*layer_, edge->inputs, {}, {Pass::kForward}), 10U);
}

// The same tokens with groups that a backward pass takes.
TEST_P(Bf16Cases, MatchTheReferenceInEveryTensorOfBothPasses) {
  auto edge = edge_case(GetParam());
  ASSERT_TRUE(edge);
  edge->shape.alignment = 64;
  edge->shape.max_rows = reference::enough_rows(kMaxTokens, edge->shape);
  ASSERT_NO_FATAL_FAILURE(make(edge->shape, edge->inputs, {.has_backward = true}));
  ASSERT_NO_FATAL_FAILURE(backward());
  EXPECT_EQ(expect_reference(*layer_, edge->inputs, dy_, {Pass::kForward}), 11U);
  EXPECT_EQ(expect_reference(*layer_, edge->inputs, dy_, {Pass::kBackward}), 9U);
}

INSTANTIATE_TEST_SUITE_P(EdgeCases, Bf16Cases, ::testing::ValuesIn(edge_case_names()),
                         [](const auto& test) { return test.param; });

constexpr LayerShape kShape{
    .experts = 4, .top_k = 2, .hidden = 272, .intermediate = 144, .alignment = 64, .max_rows = 640};

TEST_F(Bf16Layer, AddsExactlyWhatItWouldWrite) {
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

TEST_F(Bf16Layer, GivesTheSameBitsWithRecomputationAndInSharedWorkspace) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 6);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.has_backward = true}));
  ASSERT_NO_FATAL_FAILURE(backward());
  const auto wanted = gradients();
  for (const Recompute recompute : {Recompute::kNone, Recompute::kMoeExpert}) {
    ASSERT_NO_FATAL_FAILURE(
        make(kShape, inputs,
             {.keep_intermediates = false, .has_backward = true, .recompute = recompute}));
    ASSERT_TRUE(succeeded(layer_->poison()));  // forward's workspace is nobody's any more
    ASSERT_NO_FATAL_FAILURE(backward());
    EXPECT_EQ(gradients(), wanted);
    EXPECT_EQ(layer_->damage(), std::vector<std::string>{});
  }
}

// A bf16 value is off by 2^-9 / sqrt(3) * sqrt(1 / 2) = 0.08 % of itself in the mean square. The
// longest way is that to dw1, over h1, dact, dh1 and their roundings: below 0.3 %, a cosine of
// 1 - 0.003^2 / 2.
TEST_F(Bf16Layer, PointsWhereTheLayerWithoutRoundingPoints) {
  const LayerInputs inputs = reference::random_inputs(kShape, 96, 8);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.has_backward = true}));
  ASSERT_NO_FATAL_FAILURE(backward());
  const reference::UnquantizedGradients wanted =
      reference::unquantized_backward(kShape, inputs, dy_);
  constexpr double kCosine = 0.99999;
  EXPECT_GE(cosine_similarity(doubles_of_bf16("y"), reference::unquantized_forward(kShape, inputs)),
            kCosine);
  EXPECT_GE(cosine_similarity(doubles_of_bf16("dx"), wanted.dx), kCosine);
  EXPECT_GE(cosine_similarity(doubles("dw1"), wanted.dw1), kCosine);
  EXPECT_GE(cosine_similarity(doubles("dw2"), wanted.dw2), kCosine);
  EXPECT_GE(cosine_similarity(doubles("dprobs"), wanted.dprobs), kCosine);
}

TEST_F(Bf16Layer, TakesWeightsAsTheyAre) {
  const LayerInputs inputs = reference::random_inputs(kShape, 16, 9);
  ASSERT_NO_FATAL_FAILURE(make(kShape, inputs, {.has_backward = true}));
  EXPECT_EQ(layer_->plan().quantized_weight_bytes, 0);
  for (const compiler::KernelPlan& kernel : layer_->plan().kernels)
    EXPECT_NE(kernel.phase, "weights") << kernel.operation;
}

}  // namespace
}  // namespace moejit::testing
