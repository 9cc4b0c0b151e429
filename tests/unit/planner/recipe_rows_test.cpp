// SPDX-License-Identifier: Apache-2.0
// Rows of the table of recipes that nobody has written down yet: all that planning does follows
// from the formats of a row.
#include "tests/unit/planner/training_layers.h"

#include <algorithm>

namespace moejit::compiler {
namespace {

// FP8 where values flow, bf16 where weight gradients are added up.
Recipe fp8_with_bf16_wgrad() {
  Recipe recipe = Recipe::kFp8Flow;
  recipe.name = "fp8_with_bf16_wgrad";
  recipe.wgrad_operands = {};
  return recipe;
}

TEST(RecipeRows, PlanBf16WgradBesideFp8Gemms) {
  const Plan plan = plan_of(layer_of(fp8_with_bf16_wgrad()));
  EXPECT_EQ(operations_of(plan, "forward"),
            operations_of(plan_of(layer_of(Recipe::kFp8Flow)), "forward"));
  EXPECT_EQ(operations_of(plan, "backward"),
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
  const Plan plan = plan_of(layer_of(recipe));
  EXPECT_EQ(operations_of(plan, "backward"),
            (Names{"permute_pad_grad", "gemm_fc2_dgrad", "activation", "gemm_fc2_wgrad",
                   "gemm_fc2_wgrad_add", "activation_backward", "permute_pad", "gemm_fc1_wgrad",
                   "gemm_fc1_wgrad_add", "gemm_fc1_dgrad", "unpermute_grad"}));
  EXPECT_EQ(find_tensor(plan, "w1_colwise_q"), nullptr);  // dgrad takes w1 itself
  EXPECT_TRUE(touches(*find_kernel(plan, "gemm_fc1_dgrad"), "w1"));
}

TEST(RecipeRows, PlanOperandsOfWgradThatAreCastFromValues) {
  const Plan plan = plan_of(layer_of(Recipe::kFp8Blockwise));
  EXPECT_EQ(operations_of(plan, "forward"),
            (Names{"route", "quantize_permute_pad", "gemm_fc1", "activation_quantize", "gemm_fc2",
                   "unpermute"}));
  EXPECT_EQ(operations_of(plan, "backward"),
            (Names{"quantize_permute_pad_grad", "gemm_fc2_dgrad",
                   "activation_backward_quantize_both", "permute_quantize_columns_grad",
                   "gemm_fc2_wgrad", "gemm_fc2_wgrad_add", "permute_quantize_columns_x",
                   "gemm_fc1_wgrad", "gemm_fc1_wgrad_add", "gemm_fc1_dgrad", "unpermute_grad"}));
  for (const std::string_view rows : {"x", "dy"})
    EXPECT_EQ(find_tensor(plan, rows)->role, TensorRole::kInput);
  EXPECT_TRUE(touches(*find_kernel(plan, "permute_quantize_columns_x"), "x"));
  for (const std::string_view unsaved : {"x_q", "permuted", "act", "dh1"})
    EXPECT_EQ(find_tensor(plan, unsaved), nullptr) << unsaved;
  const KernelPlan& wgrad = *find_kernel(plan, "gemm_fc1_wgrad");
  EXPECT_EQ(std::get<ContractionGroupedGemmSpec>(wgrad.spec).scales, GradientScales::kRow);
  const TensorPlan& scales = *find_tensor(plan, "x_colwise_scale_inv");
  EXPECT_EQ(scales.layout, Layout::kScalesColumns);
  EXPECT_EQ(scales.shape.front().symbol, "C/128");
  EXPECT_EQ(scales.shape.back().symbol, "H");
}

TEST(RecipeRows, RoundWhatTheyCastOfComputedValuesAlone) {
  const Plan plan = plan_of(layer_of(Recipe::kFp8Blockwise));
  const auto chain = [&](std::string_view operation) {
    return std::get<RowChainSpec>(find_kernel(plan, operation)->spec);
  };
  EXPECT_EQ(chain("quantize_permute_pad").quantize, QuantizeStage::k1x128);
  EXPECT_EQ(chain("quantize_permute_pad").epsilon, 0.0f);
  EXPECT_EQ(chain("activation_quantize").quantize, QuantizeStage::k1x128Rounded);
  EXPECT_EQ(chain("activation_quantize").epsilon, 0.0f);
}

TEST(RecipeRows, CastValuesInKernelsOfTheirOwnWhereTheyAreKeptApart) {
  Layer layer = layer_of(Recipe::kFp8Blockwise);
  layer.fuse_transpose = layer.fuse_activation_transpose = false;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(operations_of(plan, "backward"),
            (Names{"quantize_permute_pad_grad", "gemm_fc2_dgrad", "permute_pad_grad",
                   "quantize_columns_grad", "activation", "quantize_columns_act", "gemm_fc2_wgrad",
                   "gemm_fc2_wgrad_add", "activation_backward_quantize", "activation_backward",
                   "quantize_columns_dh1", "permute_pad", "quantize_columns_x", "gemm_fc1_wgrad",
                   "gemm_fc1_wgrad_add", "gemm_fc1_dgrad", "unpermute_grad"}));
}

// A kernel has one rule for rows and columns.
TEST(RecipeRows, KeepCastsApartWhoseRulesDiffer) {
  Recipe recipe = Recipe::kFp8Flow;
  recipe.name = "fp8_flow_with_casts";
  recipe.wgrad_operands = kColumns128x1;
  EXPECT_NE(find_kernel(plan_of(layer_of(recipe)), "quantize_columns_dh1"), nullptr);
  recipe.gradients = Recipe::kFp8Blockwise.gradients;
  EXPECT_EQ(find_kernel(plan_of(layer_of(recipe)), "quantize_columns_dh1"), nullptr);
}

TEST(RecipeRows, SaveRowsOfTokensForRecomputation) {
  Layer layer = layer_of(Recipe::kFp8Blockwise);
  layer.recompute = Recompute::kMoeExpert;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(find_tensor(plan, "x_q")->role, TensorRole::kSaved);
  EXPECT_EQ(find_tensor(plan, "h1")->role, TensorRole::kWorkspace);
}

TEST(RecipeRows, RefuseTheBackwardPassOfDispatchedRowsWhoseValuesAreElsewhere) {
  Layer layer = layer_of(Recipe::kFp8Blockwise);
  layer.dispatch = Dispatch::kFp8;
  const Result<Plan> plan = plan_layer(layer, Target{});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  layer.passes = {Pass::kForward};
  EXPECT_TRUE(plan_layer(layer, Target{}));
}

TEST(RecipeRows, PlanScalesOfExpertsInTwoPasses) {
  const Plan plan = plan_of(layer_of(Recipe::kFp8Current));
  EXPECT_EQ(operations_of(plan, "weights"),
            (Names{"amax_w1", "scale_w1", "quantize_w1", "amax_w2", "scale_w2", "quantize_w2"}));
  EXPECT_EQ(operations_of(plan, "forward"),
            (Names{"route", "amax_x", "scale_permuted", "quantize_permute_pad", "gemm_fc1",
                   "amax_act", "scale_act", "activation_quantize", "gemm_fc2", "unpermute"}));
  EXPECT_EQ(
      operations_of(plan, "backward"),
      (Names{"amax_dy", "scale_grad_permuted", "quantize_permute_transpose_grad", "gemm_fc2_dgrad",
             "amax_dh1", "scale_dh1", "activation_backward_quantize_transpose", "gemm_fc2_wgrad",
             "gemm_fc2_wgrad_add", "transpose_x", "gemm_fc1_wgrad", "gemm_fc1_wgrad_add",
             "gemm_fc1_dgrad", "unpermute_grad"}));
  const auto& fprop = std::get<GroupedGemmSpec>(find_kernel(plan, "gemm_fc2")->spec);
  EXPECT_EQ(fprop.scales, GemmScales::kTensor);
  EXPECT_EQ(fprop.accumulation, GemmAccumulation::kFast);
  EXPECT_FALSE(fprop.is_a_e5m2);
  const auto& dgrad = std::get<GroupedGemmSpec>(find_kernel(plan, "gemm_fc1_dgrad")->spec);
  EXPECT_EQ(dgrad.accumulation, GemmAccumulation::kFp32);
  EXPECT_TRUE(dgrad.is_a_e5m2);
  const auto& wgrad =
      std::get<ContractionGroupedGemmSpec>(find_kernel(plan, "gemm_fc2_wgrad")->spec);
  EXPECT_EQ(wgrad.scales, GradientScales::kTensor);
  EXPECT_TRUE(wgrad.is_a_e5m2);
  // The rows' scales serve both orientations.
  EXPECT_TRUE(touches(*find_kernel(plan, "gemm_fc1_wgrad"), "dh1_scale_inv"));
  EXPECT_TRUE(touches(*find_kernel(plan, "gemm_fc1_wgrad"), "permuted_scale_inv"));
  EXPECT_TRUE(touches(*find_kernel(plan, "gemm_fc1_dgrad"), "w1_scale_inv"));
  EXPECT_EQ(find_tensor(plan, "dh1_q")->dtype, DType::kF8E5M2);
  EXPECT_EQ(find_tensor(plan, "act_colwise_q")->dtype, DType::kF8E4M3);
  EXPECT_EQ(tensors_of_role(plan, TensorRole::kSaved),
            (std::set<std::string>{"saved_tokens", "counts", "offs", "row_map", "row_tokens",
                                   "permuted_probs", "permuted_q", "permuted_scale_inv", "h1",
                                   "act_scale", "act_scale_inv"}));
}

TEST(RecipeRows, KeepWhatHasScalesOfExpertsApartWhereItIsAskedFor) {
  Layer layer = layer_of(Recipe::kFp8Current);
  layer.fuse_transpose = layer.fuse_activation_transpose = false;
  EXPECT_EQ(
      operations_of(plan_of(layer), "backward"),
      (Names{"amax_dy", "scale_grad_permuted", "quantize_permute_pad_grad", "gemm_fc2_dgrad",
             "transpose_grad", "transpose_act", "gemm_fc2_wgrad", "gemm_fc2_wgrad_add", "amax_dh1",
             "scale_dh1", "activation_backward_quantize", "transpose_dh1", "transpose_x",
             "gemm_fc1_wgrad", "gemm_fc1_wgrad_add", "gemm_fc1_dgrad", "unpermute_grad"}));
}

// Scales of gradients that nobody casts are not looked for.
TEST(RecipeRows, FindNoScalesOfGradientsThatAreNotCast) {
  Layer layer = layer_of(Recipe::kFp8Current);
  layer.gradients = {Gradient::kDw2, Gradient::kDprobs};
  const Plan plan = plan_of(layer);
  const KernelPlan& kernel = *find_kernel(plan, "activation_backward_quantize_transpose");
  EXPECT_FALSE(touches(kernel, "dh1_scale"));
  EXPECT_EQ(find_kernel(plan, "amax_dh1"), nullptr);
  EXPECT_EQ(find_kernel(plan, "scale_dh1"), nullptr);
}

// Rows that are computed again have the scales that the forward pass found.
TEST(RecipeRows, FindScalesAgainWhereBackwardRecomputes) {
  Layer layer = layer_of(Recipe::kFp8Current);
  layer.recompute = Recompute::kMoeExpert;
  const Plan plan = plan_of(layer);
  const Names backward = operations_of(plan, "backward");
  EXPECT_EQ(std::ranges::count(backward, "scale_act"), 1);
  EXPECT_EQ(std::ranges::count(backward, "activation_quantize"), 0);
  EXPECT_EQ(find_tensor(plan, "act_scale")->role, TensorRole::kWorkspace);
}

TEST(RecipeRows, RefuseWhatScalesOfExpertsCannotHave) {
  for (const Recipe& recipe : {Recipe::kFp8Current, Recipe::kFp8Delayed}) {
    Layer layer = layer_of(recipe);
    layer.biases = true;
    EXPECT_EQ(plan_layer(layer, Target{}).error().code, ErrorCode::kUnsupported);
    layer = layer_of(recipe);
    layer.dispatch = Dispatch::kFp8;
    EXPECT_EQ(plan_layer(layer, Target{}).error().code, ErrorCode::kUnsupported);
  }
}

// Layers of groups of 32 whose codes and scales no GEMM takes.
TEST(RecipeRows, MultiplyRecoveredValuesInBf16) {
  const Plan plan = plan_of(layer_of(Recipe::kMxfp8));
  EXPECT_EQ(operations_of(plan, "weights"), (Names{"quantize_w1", "quantize_w2"}));
  EXPECT_EQ(operations_of(plan, "forward"),
            (Names{"route", "quantize_permute_pad", "gemm_fc1", "activation_quantize", "gemm_fc2",
                   "unpermute"}));
  EXPECT_EQ(operations_of(plan, "backward"),
            (Names{"quantize_permute_pad_grad", "gemm_fc2_dgrad", "permute_quantize_columns_grad",
                   "activation", "quantize_columns_act", "gemm_fc2_wgrad", "gemm_fc2_wgrad_add",
                   "activation_backward", "quantize_columns_dh1", "permute_quantize_columns_x",
                   "gemm_fc1_wgrad", "gemm_fc1_wgrad_add", "gemm_fc1_dgrad", "unpermute_grad"}));
  for (const TensorPlan& tensor : plan.tensors) EXPECT_FALSE(tensor.name.ends_with("_scale_inv"));
  EXPECT_EQ(find_tensor(plan, "permuted_q")->dtype, DType::kBF16);
  const TensorPlan& weights = *find_tensor(plan, "w1_colwise_q");
  EXPECT_EQ(weights.shape, find_tensor(plan, "w1")->shape);  // nothing is transposed
  const auto& dgrad = std::get<GroupedGemmSpec>(find_kernel(plan, "gemm_fc1_dgrad")->spec);
  EXPECT_EQ(dgrad.operands, DType::kBF16);
  EXPECT_EQ(dgrad.b_major, Major::kMn);
  EXPECT_TRUE(touches(*find_kernel(plan, "gemm_fc1_dgrad"), "w1_colwise_q"));
  EXPECT_TRUE(touches(*find_kernel(plan, "gemm_fc1_wgrad"), "x_colwise_q"));
  EXPECT_NE(print_plan(plan, true).find("GEMMs multiply in bf16"), std::string::npos);
}

TEST(RecipeRows, MakeBothCastsOfDh1OfOneRead) {
  const Plan plan = plan_of(layer_of(Recipe::kMxfp8));
  const auto& cast = std::get<BlockCastSpec>(find_kernel(plan, "quantize_columns_dh1")->spec);
  EXPECT_TRUE(cast.casts_rows && cast.casts_columns);
  EXPECT_EQ(cast.result, CastResult::kValues);
  const auto& of_x = std::get<BlockCastSpec>(find_kernel(plan, "permute_quantize_columns_x")->spec);
  EXPECT_FALSE(of_x.casts_rows);
  EXPECT_EQ(of_x.source, RowSource::kGathered);
  for (const std::string_view unsaved : {"x_q", "permuted", "grad_permuted"})
    EXPECT_EQ(find_tensor(plan, unsaved), nullptr) << unsaved;
}

TEST(RecipeRows, CastGradientsWhereTheyAreMadeIfNobodyWantsTheirColumns) {
  Layer layer = layer_of(Recipe::kMxfp8);
  layer.gradients = {Gradient::kDx};
  const auto has_cast = [](const Layer& of) {
    return find_kernel(plan_of(of), "quantize_columns_dh1") != nullptr;
  };
  const Plan plan = plan_of(layer);
  EXPECT_FALSE(has_cast(layer));
  const KernelPlan& kernel = *find_kernel(plan, "activation_backward_quantize");
  EXPECT_EQ(std::get<RowChainSpec>(kernel.spec).quantize, QuantizeStage::k1x32Values);
  EXPECT_TRUE(touches(kernel, "dh1_q"));
  EXPECT_EQ(find_tensor(plan, "dh1"), nullptr);
  // Columns of gate and up that alternate share scales, so that rows are cast as they lie.
  layer.gate_up_layout = GateUpLayout::kInterleaved;
  EXPECT_TRUE(has_cast(layer));
}

TEST(RecipeRows, RefuseRowsThatGroupsDoNotFill) {
  Layer layer = layer_of(Recipe::kMxfp8);
  layer.intermediate += 16;
  const Result<Plan> plan = plan_layer(layer, Target{});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(plan.error().message.find("recipe mxfp8 with intermediate"), std::string::npos)
      << plan.error().message;
}

TEST(RecipeRows, RefuseOperandsThatNoGemmTakesTogether) {
  Recipe recipe = Recipe::kFp8Flow;
  recipe.name = "fp8_tokens_with_bf16_weights";
  recipe.weights = {};
  const Result<Plan> plan = plan_layer(layer_of(recipe), Target{});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace moejit::compiler
