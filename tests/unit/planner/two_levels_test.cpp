// SPDX-License-Identifier: Apache-2.0
// Layers whose blocks have scales below one of each expert.
#include "tests/unit/planner/training_layers.h"

namespace moejit::compiler {
namespace {

// Scales of blocks lie below one of an expert's rows, which is known after a look at all of them.
TEST(TwoLevels, FindScalesOfExpertsBeforeTheyCastInBlocks) {
  const Plan plan = plan_of(layer_of(Recipe::kNvfp4));
  EXPECT_EQ(operations_of(plan, "weights"),
            (Names{"amax_w1", "scale_w1", "quantize_w1", "amax_w2", "scale_w2", "quantize_w2"}));
  EXPECT_EQ(operations_of(plan, "forward"),
            (Names{"route", "permute_pad", "amax_permuted", "scale_permuted", "quantize_permuted",
                   "gemm_fc1", "activation", "amax_act", "scale_act", "quantize_act", "gemm_fc2",
                   "unpermute"}));
  EXPECT_EQ(operations_of(plan, "backward"),
            (Names{"permute_pad_grad", "amax_grad_permuted", "scale_grad_permuted",
                   "permute_quantize_columns_grad", "gemm_fc2_dgrad", "quantize_columns_act",
                   "gemm_fc2_wgrad", "gemm_fc2_wgrad_add", "activation_backward", "amax_dh1",
                   "scale_dh1", "quantize_columns_dh1", "permute_quantize_columns_x",
                   "gemm_fc1_wgrad", "gemm_fc1_wgrad_add", "gemm_fc1_dgrad", "unpermute_grad"}));
  EXPECT_EQ(std::get<ExpertScalesSpec>(find_kernel(plan, "scale_dh1")->spec).format,
            DType::kF4E2M1x2);
  EXPECT_NE(print_plan(plan, true).find("GEMMs multiply in bf16"), std::string::npos);
  for (const std::string_view saved : {"permuted_scale", "permuted_scale_inv", "act_scale_inv"})
    EXPECT_EQ(find_tensor(plan, saved)->role, TensorRole::kSaved) << saved;
}

TEST(TwoLevels, MultiplyCompleteSumsWithTheScalesOfExperts) {
  const Plan plan = plan_of(layer_of(Recipe::kNvfp4));
  for (const std::string_view gemm : {"gemm_fc1", "gemm_fc2", "gemm_fc1_dgrad", "gemm_fc2_dgrad"}) {
    const KernelPlan& kernel = *find_kernel(plan, gemm);
    const auto& spec = std::get<GroupedGemmSpec>(kernel.spec);
    EXPECT_EQ(spec.operands, DType::kBF16) << gemm;
    EXPECT_EQ(spec.scales, GemmScales::kTensor) << gemm;
  }
  EXPECT_TRUE(touches(*find_kernel(plan, "gemm_fc1"), "permuted_scale_inv"));
  const KernelPlan& wgrad = *find_kernel(plan, "gemm_fc1_wgrad");
  const auto& spec = std::get<ContractionGroupedGemmSpec>(wgrad.spec);
  EXPECT_TRUE(has_bf16_end_scales(spec));
  // Rows and columns of a tensor have one scale above those of their blocks.
  for (const std::string_view tensor :
       {"dh1_colwise_q", "dh1_scale_inv", "x_colwise_q", "permuted_scale_inv"})
    EXPECT_TRUE(touches(wgrad, tensor)) << tensor;
}

TEST(TwoLevels, HaveOneCopyOfWeightsInSquareBlocks) {
  const Plan plan = plan_of(layer_of(Recipe::kNvfp4));
  EXPECT_EQ(find_tensor(plan, "w1_colwise_q"), nullptr);
  const auto& cast = std::get<TwoLevelCastSpec>(find_kernel(plan, "quantize_w1")->spec);
  EXPECT_TRUE(cast.has_tiles && cast.casts_rows && !cast.casts_columns);
  EXPECT_EQ(find_tensor(plan, "w1_q")->dtype, DType::kBF16);
  EXPECT_EQ(find_tensor(plan, "w1_scale_inv")->role, TensorRole::kQuantized);
  const KernelPlan& dgrad = *find_kernel(plan, "gemm_fc1_dgrad");
  EXPECT_TRUE(touches(dgrad, "w1_q") && touches(dgrad, "w1_scale_inv"));
  EXPECT_EQ(std::get<GroupedGemmSpec>(dgrad.spec).b_major, Major::kMn);
}

TEST(TwoLevels, CastRowsAndColumnsOfGradientsOfOneReadBelowOneScale) {
  const Plan plan = plan_of(layer_of(Recipe::kNvfp4));
  for (const std::string_view name : {"quantize_columns_dh1", "permute_quantize_columns_grad"}) {
    const auto& cast = std::get<TwoLevelCastSpec>(find_kernel(plan, name)->spec);
    EXPECT_TRUE(cast.casts_rows && cast.casts_columns) << name;
    EXPECT_EQ(cast.result, CastResult::kValues) << name;
  }
  const auto& of_x =
      std::get<TwoLevelCastSpec>(find_kernel(plan, "permute_quantize_columns_x")->spec);
  EXPECT_FALSE(of_x.casts_rows);
  EXPECT_EQ(of_x.source, RowSource::kGathered);
}

// Without gradients of weights nobody wants columns, and no kernel casts rows whose scale it does
// not know.
TEST(TwoLevels, CastGradientsInKernelsOfTheirOwnBelowAScale) {
  Layer layer = layer_of(Recipe::kNvfp4);
  layer.gradients = {Gradient::kDx};
  const Plan plan = plan_of(layer);
  const auto& cast = std::get<TwoLevelCastSpec>(find_kernel(plan, "quantize_columns_dh1")->spec);
  EXPECT_TRUE(cast.casts_rows && !cast.casts_columns);
}

TEST(TwoLevels, SaveRowsInBlocksAsTheyWereCastForRecomputation) {
  Layer layer = layer_of(Recipe::kNvfp4);
  layer.recompute = Recompute::kMoeExpert;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(find_tensor(plan, "permuted_q")->role, TensorRole::kSaved);
  for (const std::string_view computed : {"h1", "act"})
    EXPECT_EQ(find_tensor(plan, computed)->role, TensorRole::kWorkspace) << computed;
}

TEST(TwoLevels, RefuseWhatScalesOnTwoLevelsCannotHave) {
  const auto error_of = [](const auto& change) {
    Layer layer = layer_of(Recipe::kNvfp4);
    change(layer);
    const Result<Plan> plan = plan_layer(layer, Target{});
    return plan ? std::string("planned") : plan.error().message + "; " + plan.error().hint;
  };
  const auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  const std::string biases = error_of([](Layer& layer) { layer.biases = true; });
  EXPECT_TRUE(has(biases, "recipe nvfp4 with biases \"true\"")) << biases;
  const std::string dispatch = error_of([](Layer& layer) { layer.dispatch = Dispatch::kFp8; });
  EXPECT_TRUE(has(dispatch, "recipe nvfp4 with the dispatch")) << dispatch;
  const std::string odd = error_of([](Layer& layer) {
    layer.passes = {Pass::kForward};
    layer.splits_alignment = 8;
  });
  EXPECT_TRUE(has(odd, "recipe nvfp4 with splits_alignment \"8\"")) << odd;
  EXPECT_TRUE(has(odd, "multiples of 16")) << odd;
  const std::string training = error_of([](Layer& layer) { layer.splits_alignment = 24; });
  EXPECT_TRUE(has(training, "multiples of 16")) << training;
}

}  // namespace
}  // namespace moejit::compiler
