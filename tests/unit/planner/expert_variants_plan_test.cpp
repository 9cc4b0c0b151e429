// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/planner/training_layers.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>

namespace moejit::compiler {
namespace {

std::string shape_of(const Plan& plan, std::string_view tensor) {
  std::string text;
  for (const Dim& dim : find_tensor(plan, tensor)->shape)
    text += (text.empty() ? "" : " ") + std::to_string(dim.value);
  return text;
}

TEST(ExpertVariantsPlan, HasRowsOfUpAloneWhereThereIsNoGate) {
  for (const Recipe& recipe : {Recipe::kFp8Flow, Recipe::kBf16}) {
    Layer layer = training_layer();
    layer.recipe = recipe;
    layer.intermediate = 2880;
    layer.activation = make_activation("relu_squared").value();
    const Plan plan = plan_of(layer);
    EXPECT_EQ(shape_of(plan, "w1"), "8 2880 7168");
    EXPECT_EQ(shape_of(plan, "h1"), "32768 2880");
    EXPECT_EQ(shape_of(plan, "dw1"), "8 2880 7168");
    EXPECT_EQ(find_kernel(plan, "gemm_fc1_activation_quantize"), nullptr);
    if (recipe == Recipe::kBf16) continue;
    // Nothing is filled up: the contraction has no two halves.
    EXPECT_EQ(shape_of(plan, "dh1_q"), "32768 2880");
    EXPECT_EQ(shape_of(plan, "w1_colwise_q"), "8 7168 2880");
    EXPECT_TRUE(std::ranges::any_of(plan.reasons, [](const std::string& reason) {
      return reason.find("there is no gate") != std::string::npos;
    }));
  }
}

// Expects that of the kernels only the cast and the gradient of w1 know how gate and up lie.
void expect_w1_alone_differs(const Plan& plan, const Plan& concat) {
  ASSERT_EQ(plan.kernels.size(), concat.kernels.size());
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const KernelPlan& kernel = plan.kernels[i];
    const bool knows =
        kernel.operation == "quantize_w1" || kernel.operation.starts_with("gemm_fc1_wgrad");
    EXPECT_EQ(kernel.spec != concat.kernels[i].spec, knows) << kernel.operation;
  }
}

TEST(ExpertVariantsPlan, SortsAlternatingRowsInTheKernelThatQuantizesThem) {
  Layer layer = training_layer();
  const Plan concat = plan_of(layer);
  layer.gate_up_layout = GateUpLayout::kInterleaved;
  const Plan plan = plan_of(layer);
  expect_w1_alone_differs(plan, concat);
  EXPECT_TRUE(std::get<TileChainSpec>(find_kernel(plan, "quantize_w1")->spec).is_interleaved);
  const TensorBox& d = find_kernel(plan, "gemm_fc1_wgrad")->tensor_maps.back().box;
  EXPECT_EQ(d.rank, 4);
  EXPECT_EQ(d.dims, (std::array<int64_t, 4>{7168, 2, 2048, 8}));
  EXPECT_EQ(d.strides_bytes,
            (std::array<int64_t, 3>{4 * 7168, 2 * 4 * 7168, int64_t{4096} * 4 * 7168}));
}

TEST(ExpertVariantsPlan, ReadsAndWritesGateAndUpWhereTheyLie) {
  for (const Recipe& recipe : {Recipe::kFp8Flow, Recipe::kFp8Blockwise}) {
    Layer layer = training_layer();
    layer.recipe = recipe;
    const Plan concat = plan_of(layer);
    layer.gate_up_layout = GateUpLayout::kSeparate;
    const Plan plan = plan_of(layer);
    expect_w1_alone_differs(plan, concat);
    EXPECT_EQ(plan.workspace_bytes, concat.workspace_bytes);
    EXPECT_EQ(plan.quantized_weight_bytes, concat.quantized_weight_bytes);
    EXPECT_EQ(find_tensor(plan, "w1"), nullptr);
    EXPECT_EQ(find_tensor(plan, "dw1"), nullptr);
    for (const char* name : {"w1_gate", "w1_up", "dw1_gate", "dw1_up"})
      EXPECT_EQ(shape_of(plan, name), "8 2048 7168") << name;
    for (const char* operation : {"gemm_fc1_wgrad", "gemm_fc1_wgrad_add"}) {
      const std::vector<TensorMapPlan>& maps = find_kernel(plan, operation)->tensor_maps;
      ASSERT_EQ(maps.size(), 4u);
      EXPECT_EQ(maps[2].tensor, "dw1_gate");
      EXPECT_EQ(maps[3].tensor, "dw1_up");
      EXPECT_EQ(maps[3].box, maps[2].box);
      EXPECT_EQ(maps[3].box.dims, (std::array<int64_t, 4>{7168, 2048, 8}));
    }
    layer.gradients = {Gradient::kDx, Gradient::kDw2};
    EXPECT_EQ(find_tensor(plan_of(layer), "dw1_up"), nullptr);
  }
}

TEST(ExpertVariantsPlan, RefusesPackedWeightsWithABackwardPassOrWeightChecks) {
  for (const bool has_checks : {false, true}) {
    Layer layer = training_layer();
    layer.recipe.weights = kPackedTiles;
    layer.weight_checks = has_checks;
    if (has_checks) layer.passes = {Pass::kForward};
    const Result<Plan> plan = plan_layer(layer, Target{});
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(plan.error().message, "layer \"" + layer.name + "\": " +
                                        (has_checks ? "weight_checks" : "a backward pass") +
                                        " with weight_format \"mxfp4\" does not run on target "
                                        "cuda:sm_90a");
  }
}

// Half of dh1's columns, and of the contraction of dgrad, is a whole number of tiles.
TEST(ExpertVariantsPlan, MultipliesGateAndUpInBf16WhereTheyLie) {
  Layer layer = training_layer();
  layer.recipe = Recipe::kBf16;
  layer.intermediate = 400;
  const Plan concat = plan_of(layer);
  layer.gate_up_layout = GateUpLayout::kSeparate;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(find_tensor(plan, "w1"), nullptr);
  for (const char* operation : {"gemm_fc1", "gemm_fc1_dgrad"}) {
    const KernelPlan& gemm = *find_kernel(plan, operation);
    const std::vector<TensorMapPlan>& maps = gemm.tensor_maps;
    EXPECT_EQ(std::get<GroupedGemmSpec>(gemm.spec).separate_rows, 400);
    ASSERT_EQ(maps.size(), 4u);
    EXPECT_EQ(maps[1].tensor, "w1_gate");
    EXPECT_EQ(maps[2].tensor, "w1_up");
    EXPECT_EQ(maps[2].box, maps[1].box);
    EXPECT_EQ(std::get<GroupedGemmSpec>(find_kernel(concat, operation)->spec).separate_rows, 0);
  }
  EXPECT_EQ(std::get<GroupedGemmSpec>(find_kernel(plan, "gemm_fc1")->spec).sections, 2);
  EXPECT_EQ(std::get<GroupedGemmSpec>(find_kernel(plan, "gemm_fc1_dgrad")->spec).k, 2 * 512);
  EXPECT_EQ(find_tensor(plan, "dh1")->shape.back().value, 2 * 512);
  EXPECT_EQ(find_kernel(plan, "gemm_fc1_wgrad")->tensor_maps[3].tensor, "dw1_up");
}

TEST(ExpertVariantsPlan, RefusesSeparateTensorsThatNothingJoins) {
  for (const Recipe& recipe : kRecipes) {
    if (recipe == Recipe::kBf16 || recipe == Recipe::kFp8Flow || recipe == Recipe::kFp8Blockwise)
      continue;
    Layer layer = training_layer();
    layer.recipe = recipe;
    layer.gate_up_layout = GateUpLayout::kSeparate;
    const Result<Plan> plan = plan_layer(layer, Target{});
    ASSERT_FALSE(plan) << recipe.name;
    EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(plan.error().message,
              "layer \"" + layer.name + "\": recipe " + std::string(recipe.name) +
                  " with gate_up_layout \"separate\" does not run on target cuda:sm_90a");
    EXPECT_EQ(plan.error().hint,
              "it can run: gate_up_layout \"concat\", or the recipes bf16, fp8_flow, "
              "fp8_blockwise");
  }
  Layer layer = training_layer();
  layer.gate_up_layout = GateUpLayout::kSeparate;
  layer.weight_checks = true;
  EXPECT_FALSE(plan_layer(layer, Target{}));
}

TEST(ExpertVariantsPlan, LetsColumnsAlternateWhereNothingIsQuantized) {
  Layer layer = training_layer();
  layer.recipe = Recipe::kBf16;
  const Plan concat = plan_of(layer);
  layer.gate_up_layout = GateUpLayout::kInterleaved;
  const Plan plan = plan_of(layer);
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const bool knows = plan.kernels[i].operation.starts_with("activation");
    EXPECT_EQ(plan.kernels[i].spec != concat.kernels[i].spec, knows) << plan.kernels[i].operation;
  }
}

TEST(ExpertVariantsPlan, AddsUpTheGradientsOfBiases) {
  for (const Recipe& recipe : {Recipe::kFp8Flow, Recipe::kBf16}) {
    Layer layer = training_layer();
    layer.recipe = recipe;
    layer.biases = true;
    const Plan plan = plan_of(layer);
    EXPECT_EQ(shape_of(plan, "b1"), "8 4096");
    EXPECT_EQ(shape_of(plan, "db2"), "8 7168");
    const std::vector<std::string> operations = operations_of(plan, "backward");
    for (const char* name : {"bias_dprobs", "fc2_bias_grad", "fc2_bias_grad_add", "fc1_bias_grad",
                             "fc1_bias_grad_add"})
      EXPECT_EQ(std::ranges::count(operations, name), 1) << name;
    for (const KernelPlan& kernel : plan.kernels)
      if (const auto* gemm = std::get_if<GroupedGemmSpec>(&kernel.spec)) {
        EXPECT_EQ(gemm->bias != GemmBias::kNone, kernel.phase == "forward") << kernel.operation;
      }
    // The forward pass reads them, nothing is made of them beforehand.
    EXPECT_TRUE(call_takes(plan, "forward", "b1"));
    EXPECT_FALSE(call_takes(plan, "update_weights", "b1"));
  }
}

}  // namespace
}  // namespace moejit::compiler
