// SPDX-License-Identifier: Apache-2.0
// Rows of the table of recipes, those that it has and others that are made up of the same formats:
// each plans, runs, and is compared with the CPU reference tensor by tensor, and no line of the
// planner, of the kernels or of the check knows of it.
#include "runtime/reference/random_inputs.h"
#include "tests/gpu/layer_checks.h"
#include "tests/gpu/test_layer.h"
#include "tests/support/layer_inputs.h"
#include "tests/support/matchers.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moejit::testing {
namespace {

using compiler::Pass;
using compiler::Recipe;
using reference::LayerInputs;
using reference::LayerShape;

constexpr int64_t kTokens = 80;

// FP8 where values flow, bf16 where the gradients of weights are added up.
Recipe fp8_with_bf16_wgrad() {
  Recipe recipe = Recipe::kFp8Flow;
  recipe.name = "fp8_with_bf16_wgrad";
  recipe.wgrad_operands = {};
  return recipe;
}

Recipe fp8_forward_bf16_backward() {
  Recipe recipe = fp8_with_bf16_wgrad();
  recipe.name = "fp8_forward_bf16_backward";
  recipe.gradients = recipe.weights_colwise = {};
  return recipe;
}

// Operands of wgrad that are cast from values, of rows that are quantized otherwise than in
// fp8_blockwise.
Recipe fp8_flow_with_casts() {
  Recipe recipe = Recipe::kFp8Flow;
  recipe.name = "fp8_flow_with_casts";
  recipe.wgrad_operands = compiler::kColumns128x1;
  return recipe;
}

// Current scaling with e4m3 alone.
Recipe current_scaling_in_e4m3() {
  Recipe recipe = Recipe::kFp8Current;
  recipe.name = "fp8_current_in_e4m3";
  recipe.gradients = compiler::kExpertE4m3;
  return recipe;
}

// Current scaling where values flow forward, bf16 backward.
Recipe current_scaling_forward() {
  Recipe recipe = Recipe::kFp8Current;
  recipe.name = "fp8_current_forward";
  recipe.gradients = recipe.weights_colwise = recipe.wgrad_operands = {};
  return recipe;
}

// Scales of whole rows where values flow forward, bf16 backward.
Recipe rowwise_forward() {
  Recipe recipe = Recipe::kFp8Rowwise;
  recipe.name = "fp8_rowwise_forward";
  recipe.gradients = recipe.weights_colwise = recipe.wgrad_operands = {};
  return recipe;
}

// Scales of whole rows where values flow, of 128 tokens in wgrad, whose sums are promoted.
Recipe rowwise_with_blocks() {
  Recipe recipe = Recipe::kFp8Rowwise;
  recipe.name = "fp8_rowwise_with_blocks";
  recipe.wgrad_operands = compiler::kColumns128x1;
  recipe.is_backward_fast = false;
  return recipe;
}

struct Row {
  Recipe recipe;
  bool has_biases = false;
  compiler::Recompute recompute = compiler::Recompute::kNone;

  friend void PrintTo(const Row& row, std::ostream* stream) { *stream << row.recipe.name; }
};

class RecipeRows : public ::testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    if (test_device().device == nullptr) GTEST_SKIP() << test_device().reason;
  }
  // Runs a training step of a layer with this recipe.
  void run(const Recipe& recipe) {
    // Groups of 32 fill rows whole; blocks of 128 need not.
    const bool has_groups = recipe.tokens.scale == compiler::ScaleOf::k1x32;
    const LayerShape shape{.experts = 4,
                           .top_k = 2,
                           .hidden = has_groups ? 288 : 272,
                           .intermediate = has_groups ? 160 : 144,
                           .alignment = 64,
                           .max_rows = 512,
                           .has_biases = GetParam().has_biases};
    inputs_ = reference::random_inputs(shape, kTokens, 21);
    if (shape.has_biases) {
      inputs_.b1 = reference::random_activations(shape.experts, 2 * shape.intermediate, 31);
      inputs_.b2 = reference::random_activations(shape.experts, shape.hidden, 32);
    }
    auto layer = TestLayer::create(shape, {.max_tokens = kTokens,
                                           .has_backward = true,
                                           .recompute = GetParam().recompute,
                                           .recipe = recipe,
                                           .biases = shape.has_biases});
    ASSERT_TRUE(succeeded(layer));
    layer_ = std::move(*layer);
    dy_ = reference::random_activations(kTokens, shape.hidden, 77);
    ASSERT_TRUE(succeeded(is_quantized(recipe.weights) ? layer_->set_weights(inputs_)
                                                       : layer_->upload_weights(inputs_)));
    ASSERT_TRUE(succeeded(layer_->set_gradient(dy_)));
    ASSERT_TRUE(succeeded(layer_->run(inputs_)));
    ASSERT_TRUE(succeeded(layer_->backward(GradientMode::kOverwrite)));
    ASSERT_TRUE(succeeded(test_device().device->synchronize(nullptr)));
  }

  LayerInputs inputs_;
  std::vector<uint16_t> dy_;
  std::unique_ptr<TestLayer> layer_;
};

// Is compared in every tensor, too. A forward pass has the bits of another recipe with its formats.
TEST_P(RecipeRows, MatchTheReferenceInEveryTensor) {
  const Recipe& recipe = GetParam().recipe;
  ASSERT_NO_FATAL_FAILURE(run(recipe));
  const auto y = layer_->read<uint16_t>("y");
  expect_reference(*layer_, inputs_, dy_);
  EXPECT_EQ(unseen_damage(*layer_, inputs_, dy_, {Pass::kForward, Pass::kBackward}),
            std::vector<std::string>{});
  const auto has_its_formats = [&](const Recipe& other) {
    return other.tokens == recipe.tokens && other.activations == recipe.activations &&
           other.weights == recipe.weights && other.has_history == recipe.has_history;
  };
  const Recipe& other = *std::ranges::find_if(compiler::kRecipes, has_its_formats);
  if (other == recipe) return;
  ASSERT_NO_FATAL_FAILURE(run(other));
  EXPECT_EQ(layer_->read<uint16_t>("y"), y);
}

INSTANTIATE_TEST_SUITE_P(
    All, RecipeRows,
    ::testing::Values(
        Row{Recipe::kBf16}, Row{Recipe::kFp8Flow, true}, Row{fp8_with_bf16_wgrad()},
        Row{fp8_with_bf16_wgrad(), true, compiler::Recompute::kMoeExpert},
        Row{fp8_forward_bf16_backward(), true}, Row{Recipe::kFp8Blockwise},
        Row{Recipe::kFp8Blockwise, true},
        Row{Recipe::kFp8Blockwise, false, compiler::Recompute::kMoeExpert}, Row{Recipe::kMxfp8},
        Row{Recipe::kMxfp8, true}, Row{Recipe::kMxfp8, false, compiler::Recompute::kMoeExpert},
        Row{Recipe::kNvfp4}, Row{Recipe::kNvfp4, false, compiler::Recompute::kMoeExpert},
        Row{fp8_flow_with_casts()},
        Row{fp8_flow_with_casts(), false, compiler::Recompute::kMoeExpert},
        Row{Recipe::kFp8Delayed}, Row{Recipe::kFp8Delayed, false, compiler::Recompute::kMoeExpert},
        Row{Recipe::kFp8Current},
        Row{current_scaling_in_e4m3(), false, compiler::Recompute::kMoeExpert},
        Row{current_scaling_forward()}, Row{Recipe::kFp8Rowwise},
        Row{Recipe::kFp8Rowwise, false, compiler::Recompute::kMoeExpert}, Row{rowwise_forward()},
        Row{rowwise_with_blocks()}),
    [](const auto& test) {
      return std::string(test.param.recipe.name) + (test.param.has_biases ? "_with_biases" : "") +
             (test.param.recompute == compiler::Recompute::kNone ? "" : "_recomputed");
    });

}  // namespace
}  // namespace moejit::testing
