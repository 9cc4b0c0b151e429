// SPDX-License-Identifier: Apache-2.0
// Rows of the table of recipes that nobody has written down yet: all that planning does follows
// from the formats of a row.
#include "tests/unit/planner/training_layers.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

using Names = std::vector<std::string>;

Layer layer_of(const Recipe& recipe) {
  Layer layer = training_layer();
  layer.recipe = recipe;
  return layer;
}

// FP8 where values flow, bf16 where weight gradients are added up.
Recipe fp8_with_bf16_wgrad() {
  Recipe recipe = Recipe::kFp8Flow;
  recipe.name = "fp8_with_bf16_wgrad";
  recipe.wgrad_operands = {};
  return recipe;
}

TEST(RecipeRows, PlanBf16WgradBesideFp8Gemms) {
  const LayerPlan plan = plan_of(layer_of(fp8_with_bf16_wgrad()));
  EXPECT_EQ(operations_of(plan, Phase::kForward),
            operations_of(plan_of(layer_of(Recipe::kFp8Flow)), Phase::kForward));
  EXPECT_EQ(operations_of(plan, Phase::kBackward),
            (Names{"quantize_permute_pad_grad", "gemm_fc2_dgrad", "permute_pad_grad", "activation",
                   "gemm_fc2_wgrad", "gemm_fc2_wgrad_add", "activation_backward_quantize",
                   "activation_backward", "permute_pad", "gemm_fc1_wgrad", "gemm_fc1_wgrad_add",
                   "gemm_fc1_dgrad", "unpermute_grad"}));
  const KernelPlan& wgrad = *find_kernel(plan, "gemm_fc2_wgrad");
  EXPECT_EQ(std::get<ContractionGroupedGemmSpec>(wgrad.spec).scales, GradientScales::kNone);
  EXPECT_TRUE(touches(wgrad, "grad_permuted"));
  EXPECT_TRUE(touches(wgrad, "act"));
}

TEST(RecipeRows, PlanFp8ForwardAndBf16Backward) {
  Recipe recipe = fp8_with_bf16_wgrad();
  recipe.gradients = recipe.weights_colwise = {};
  const LayerPlan plan = plan_of(layer_of(recipe));
  EXPECT_EQ(operations_of(plan, Phase::kBackward),
            (Names{"permute_pad_grad", "gemm_fc2_dgrad", "activation", "gemm_fc2_wgrad",
                   "gemm_fc2_wgrad_add", "activation_backward", "permute_pad", "gemm_fc1_wgrad",
                   "gemm_fc1_wgrad_add", "gemm_fc1_dgrad", "unpermute_grad"}));
  EXPECT_EQ(find_tensor(plan, "w1_colwise_q"), nullptr);  // dgrad takes w1 itself
  EXPECT_TRUE(touches(*find_kernel(plan, "gemm_fc1_dgrad"), "w1"));
}

TEST(RecipeRows, RefuseOperandsThatNoGemmTakesTogether) {
  Recipe recipe = Recipe::kFp8Flow;
  recipe.name = "fp8_tokens_with_bf16_weights";
  recipe.weights = {};
  const Result<LayerPlan> plan = plan_layer(layer_of(recipe), Target{});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace moejit::compiler
