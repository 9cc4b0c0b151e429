// SPDX-License-Identifier: Apache-2.0
// Plans of layers that compute some of their gradients.
#include "tests/unit/planner/training_layers.h"

#include <algorithm>
#include <set>
#include <string>

namespace moejit::compiler {
namespace {

using enum Gradient;

TEST(GradientsPlan, HasNothingForGradientsThatItDoesNotCompute) {
  for (const Layer& all : training_layers()) {
    for (const std::vector<Gradient>& subset : subsets_of(all_gradients(all))) {
      Layer layer = all;
      layer.gradients = subset;
      const Plan plan = plan_of(layer);
      SCOPED_TRACE(to_json(layer));
      std::set<std::string> got, wanted;
      for (const Gradient gradient : all_gradients(all))
        if (find_tensor(plan, to_string(gradient)) != nullptr) got.emplace(to_string(gradient));
      for (const Gradient gradient : subset) wanted.emplace(to_string(gradient));
      ASSERT_EQ(got, wanted);
      for (const TensorPlan& tensor : plan.tensors) {
        if (is_callers(tensor.role) && tensor.role != TensorRole::kQuantized) continue;
        // Somebody writes it, and another one reads that; where it is saved, another pass.
        const auto users = std::ranges::count_if(
            plan.kernels, [&](const KernelPlan& kernel) { return touches(kernel, tensor.name); });
        ASSERT_GE(users, 2) << tensor.name;
        const bool is_kept =
            touches_in(plan, "forward", tensor) && touches_in(plan, "backward", tensor);
        ASSERT_TRUE(tensor.role != TensorRole::kSaved || is_kept) << tensor.name;
      }
    }
  }
}

TEST(GradientsPlan, SavesNoMoreThanForAllOfThem) {
  for (const Layer& all : training_layers()) {
    const int64_t most = plan_of(all).saved_bytes;
    for (const std::vector<Gradient>& subset : subsets_of(all_gradients(all))) {
      Layer layer = all;
      layer.gradients = subset;
      EXPECT_LE(plan_of(layer).saved_bytes, most) << to_json(layer);
    }
  }
}

// All of them are what is computed where nothing is said.
TEST(GradientsPlan, IsTheSameForAllAndForNoList) {
  for (Layer layer : training_layers()) {
    Plan wanted = plan_of(layer);
    layer.gradients = all_gradients(layer);
    const Plan plan = plan_of(layer);
    EXPECT_EQ(plan.kernels, wanted.kernels);
    EXPECT_EQ(plan.tensors, wanted.tensors);
  }
}

TEST(GradientsPlan, OfFrozenExpertsHasNoWeightGradients) {
  Layer layer = training_layer();
  layer.gradients = {kDx, kDprobs};
  const Plan plan = plan_of(layer);
  EXPECT_EQ(operations_of(plan, "backward"),
            (std::vector<std::string>{"quantize_permute_pad_grad", "gemm_fc2_dgrad",
                                      "activation_backward_quantize", "gemm_fc1_dgrad",
                                      "unpermute_grad"}));
  EXPECT_EQ(
      tensors_of_role(plan, TensorRole::kSaved),
      (std::set<std::string>{"saved_tokens", "counts", "offs", "row_map", "permuted_probs", "h1"}));
  // x_q is not written beside the permuted rows.
  EXPECT_EQ(find_tensor(plan, "x_q"), nullptr);
  layer.recompute = Recompute::kMoeExpert;
  EXPECT_EQ(tensors_of_role(plan_of(layer), TensorRole::kSaved),
            (std::set<std::string>{"saved_tokens", "x_q", "x_scale_inv", "counts", "offs",
                                   "row_map", "permuted_probs"}));
}

TEST(GradientsPlan, TellsWhereCastsOfWeightsMayCostMoreThanTheySpare) {
  for (const bool has_few : {false, true}) {
    Layer layer = training_layer();
    layer.splits_alignment = 16;
    layer.max_tokens = (has_few ? 149 : 150) * layer.experts / layer.top_k;
    const Plan plan = plan_of(layer);
    const bool tells =
        std::ranges::any_of(find_kernel(plan, "quantize_w1")->reasons, [](const std::string& text) {
          return text.starts_with("at about 149 rows an expert, casting weights in each step");
        });
    EXPECT_EQ(tells, has_few);
  }
}

TEST(GradientsPlan, WithoutDxMultipliesNoGradientWithW1) {
  Layer layer = training_layer();
  layer.gradients = {kDw1, kDw2};
  const Plan plan = plan_of(layer);
  EXPECT_EQ(
      operations_of(plan, "backward"),
      (std::vector<std::string>{"quantize_permute_pad_grad", "gemm_fc2_dgrad",
                                "activation_backward_quantize_transpose", "permute_transpose_grad",
                                "gemm_fc2_wgrad", "gemm_fc2_wgrad_add", "permute_transpose_x",
                                "gemm_fc1_wgrad", "gemm_fc1_wgrad_add"}));
  EXPECT_EQ(find_tensor(plan, "w1_colwise_q"), nullptr);
  EXPECT_NE(find_tensor(plan, "w2_colwise_q"), nullptr);
  EXPECT_FALSE(std::get<TileChainSpec>(find_kernel(plan, "quantize_w1")->spec).writes_colwise);
  const auto& gradient = std::get<GatedGradientSpec>(
      find_kernel(plan, "activation_backward_quantize_transpose")->spec);
  EXPECT_FALSE(gradient.stores_rows);
  EXPECT_FALSE(gradient.tells_dprobs);
  EXPECT_TRUE(gradient.transposes_gradient);
}

TEST(GradientsPlan, GathersProbabilitiesAloneWithoutDx) {
  Layer layer = training_layer();
  layer.gradients = {kDprobs};
  const Plan plan = plan_of(layer);
  EXPECT_EQ(operations_of(plan, "backward"),
            (std::vector<std::string>{"quantize_permute_pad_grad", "gemm_fc2_dgrad",
                                      "activation_dprobs", "unpermute_dprobs"}));
  const KernelPlan* const gather = find_kernel(plan, "unpermute_dprobs");
  EXPECT_LT(gather->min_bytes, find_kernel(plan, "unpermute")->min_bytes / 100);
}

TEST(GradientsPlan, WithoutDprobsAddsUpRowsAlone) {
  Layer layer = training_layer();
  layer.biases = true;
  layer.gradients = {kDx};
  const Plan plan = plan_of(layer);
  EXPECT_EQ(std::get<RowChainSpec>(find_kernel(plan, "unpermute_dx")->spec).store,
            StoreStage::kRows);
  EXPECT_FALSE(
      std::get<RowChainSpec>(find_kernel(plan, "activation_backward_quantize")->spec).tells_dprobs);
  EXPECT_EQ(find_kernel(plan, "bias_dprobs"), nullptr);
  EXPECT_EQ(find_tensor(plan, "dprobs_blocks"), nullptr);
}

TEST(GradientsPlan, OfDw2AloneNeedsNoH1) {
  Layer layer = training_layer();
  layer.gradients = {kDw2};
  const Plan plan = plan_of(layer);
  EXPECT_EQ(operations_of(plan, "backward"),
            (std::vector<std::string>{"quantize_dy", "permute_transpose_grad", "transpose_act",
                                      "gemm_fc2_wgrad", "gemm_fc2_wgrad_add"}));
  EXPECT_FALSE(tensors_of_role(plan, TensorRole::kSaved).contains("h1"));
  EXPECT_EQ(find_tensor(plan, "grad_permuted_q"), nullptr);
  // Where h1 is there anyway, the activation is made of it, and not saved.
  layer.gradients = {kDx, kDw2};
  const Plan with_dx = plan_of(layer);
  EXPECT_FALSE(tensors_of_role(with_dx, TensorRole::kSaved).contains("act_q"));
  const auto& gradient = std::get<GatedGradientSpec>(
      find_kernel(with_dx, "activation_backward_quantize_transpose")->spec);
  EXPECT_TRUE(gradient.stores_rows);
  EXPECT_FALSE(gradient.transposes_gradient);
}

TEST(GradientsPlan, StartsColumnsElsewhereOnlyForWeightGradients) {
  Layer layer = training_layer();
  layer.splits_alignment = 16;
  layer.gradients = {kDx, kDprobs};
  const Plan plan = plan_of(layer);
  EXPECT_EQ(find_tensor(plan, "colwise_offs"), nullptr);
  EXPECT_FALSE(std::get<RouteSpec>(find_kernel(plan, "route")->spec).has_colwise_offs);
}

TEST(GradientsPlan, SaysWhatItComputes) {
  Layer layer = training_layer();
  layer.gradients = {kDx, kDprobs};
  EXPECT_NE(print_plan(plan_of(layer), true).find("backward computes dx, dprobs alone"),
            std::string::npos);
}

TEST(GradientsPlan, IsComparedWithOtherWaysToComputeTheSame) {
  Layer layer = training_layer();
  layer.gradients = {kDx, kDprobs};
  const Plan plan = plan_of(layer);
  const std::vector<SavedMemory> all = compare_saved_memory(plan);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].bytes, plan.saved_bytes);
  layer.recipe = Recipe::kBf16;
  EXPECT_EQ(all[2].bytes, plan_of(layer).saved_bytes);
}

// A description may have a list that a call of the forward pass alone does not need.
TEST(GradientsPlan, IsAForwardPassWithoutBackward) {
  Layer layer = training_layer();
  layer.passes = {Pass::kForward};
  Layer with_list = layer;
  with_list.gradients = {kDx};
  with_list.backward_halves = true;
  EXPECT_EQ(plan_of(with_list).kernels, plan_of(layer).kernels);
}

}  // namespace
}  // namespace moejit::compiler
