// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/planner/planner_layers.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace moejit::compiler {
namespace {

TEST(FusedActivationPlan, KeepsTheActivationApartWhereBlocksOfItShareTheirScales) {
  Layer layer = dsv3_like_layer();
  layer.scale_sharing_k = 2;
  const Plan plan = plan_of(layer);
  EXPECT_NE(find_kernel(plan, "activation_quantize"), nullptr);
  EXPECT_NE(find_tensor(plan, "h1"), nullptr);
  EXPECT_NE(print_plan(plan, true).find("stay apart: 2 neighboring blocks of act share a scale"),
            std::string::npos);
}

TEST(FusedActivationPlan, KeepsTheActivationApartWhereItCallsManyFunctions) {
  Layer layer = dsv3_like_layer();
  layer.activation = parse_activation("tanh(gate) * erf(up)").value();
  EXPECT_NE(find_kernel(plan_of(layer), "gemm_fc1_activation_quantize"), nullptr);
  layer.activation = parse_activation("tanh(gate) * erf(up) + tanh(up)").value();
  const Plan plan = plan_of(layer);
  EXPECT_NE(find_kernel(plan, "activation_quantize"), nullptr);
  EXPECT_NE(print_plan(plan, true).find("the activation calls 3 functions"), std::string::npos);
}

TEST(FusedActivationPlan, JoinsTheActivationInTilesThatAreSwappedWithoutABackwardPass) {
  Layer layer = dsv3_like_layer();
  layer.max_tokens = 512;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  for (const Recipe& recipe : {Recipe::kFp8Flow, Recipe::kFp8Blockwise}) {
    layer.recipe = recipe;
    const KernelPlan* fused = nullptr;
    const Plan plan = plan_of(layer);
    ASSERT_NE(fused = find_kernel(plan, "gemm_fc1_activation_quantize"), nullptr);
    const auto& spec = std::get<GroupedGemmSpec>(fused->spec);
    EXPECT_TRUE(spec.is_swapped);
    EXPECT_EQ(spec.rounds_activation, recipe.activations.rounds_to_bf16);
  }
  layer.recipe = Recipe::kFp8Flow;
  layer.passes = {Pass::kForward, Pass::kBackward};
  const Plan training = plan_of(layer);
  EXPECT_NE(find_kernel(training, "activation_quantize"), nullptr);
  EXPECT_NE(print_plan(training, true).find("stay apart: an expert has 16 rows in the mean"),
            std::string::npos);
}

// Tiles that quantize have 96 rows at most, tiles that do not have 128.
TEST(FusedActivationPlan, KeepsAnActivationInFp8ApartWhereGroupsMayPassATile) {
  Layer layer = dsv3_like_layer();
  layer.max_tokens = 544;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  const Plan plan = plan_of(layer);
  EXPECT_NE(find_kernel(plan, "activation_quantize"), nullptr);
  EXPECT_NE(print_plan(plan, true).find("17 rows in the mean, and groups of more than 96 rows"),
            std::string::npos);
  layer.recipe = Recipe::kBf16;
  EXPECT_NE(find_kernel(plan_of(layer), "gemm_fc1_activation"), nullptr);
}

// Tiles of 128 rows have no room for biases.
TEST(FusedActivationPlan, JoinsTheActivationAndBiasesInSwappedTilesAlone) {
  Layer layer = dsv3_like_layer();
  layer.biases = true;
  EXPECT_NE(find_kernel(plan_of(layer), "activation_quantize"), nullptr);
  layer.max_tokens = 512;
  const KernelPlan* fused = nullptr;
  const Plan plan = plan_of(layer, {.list_candidates = true});
  ASSERT_NE(fused = find_kernel(plan, "gemm_fc1_activation_quantize"), nullptr);
  for (const Choices& choices : fused->candidates) EXPECT_TRUE(choices.contains("tile_rows"));
}

TEST(FusedActivationPlan, KeepsTheActivationApartWhereAScaleIsOfAWholeRow) {
  Layer layer = dsv3_like_layer();
  layer.recipe = Recipe::kFp8Rowwise;
  EXPECT_NE(print_plan(plan_of(layer), true).find("the scale of a row follows from all of its"),
            std::string::npos);
}

// Rows of gate and of up are in packed tiles of their own.
TEST(FusedActivationPlan, KeepsTheActivationApartWhereWeightsArePacked) {
  for (const Recipe& recipe : {Recipe::kFp8Flow, Recipe::kFp8Blockwise})
    for (const bool has_biases : {false, true})
      for (const int64_t tokens : {16, 4096}) {
        Layer layer = dsv3_like_layer();
        layer.recipe = recipe;
        layer.recipe.weights = kPackedTiles;
        layer.biases = has_biases;
        layer.max_tokens = tokens;
        const Plan plan = plan_of(layer, {.list_candidates = true});
        EXPECT_NE(find_kernel(plan, "activation_quantize"), nullptr);
        const KernelPlan* gemm = nullptr;
        ASSERT_NE(gemm = find_kernel(plan, "gemm_fc1"), nullptr);
        EXPECT_TRUE(std::get<GroupedGemmSpec>(gemm->spec).is_swapped);
        for (const Choices& choices : gemm->candidates) EXPECT_TRUE(choices.contains("tile_rows"));
        EXPECT_NE(print_plan(plan, true).find("stay apart: a tile multiplies one packed tile"),
                  std::string::npos);
      }
}

// The cast of w1 joins gate and up, and the GEMM reads what it wrote.
TEST(FusedActivationPlan, JoinsTheActivationWhereGateAndUpAreTwoTensors) {
  Layer layer = dsv3_like_layer();
  layer.max_tokens = 512;
  const Plan concat = plan_of(layer);
  layer.gate_up_layout = GateUpLayout::kSeparate;
  const Plan separate = plan_of(layer);
  const KernelPlan* fused = nullptr;
  ASSERT_NE(fused = find_kernel(separate, "gemm_fc1_activation_quantize"), nullptr);
  EXPECT_EQ(fused->spec, find_kernel(concat, "gemm_fc1_activation_quantize")->spec);
  EXPECT_EQ(fused->tensor_maps[1].tensor, "w1_q");
}

Layer few_tokens_in_bf16() {
  Layer layer = dsv3_like_layer();
  layer.recipe = Recipe::kBf16;
  layer.max_tokens = 1024;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return layer;
}

TEST(FusedActivationPlan, JoinsTheActivationInBf16WhereTilesAreSwapped) {
  Layer layer = few_tokens_in_bf16();
  const Plan plan = plan_of(layer);
  std::vector<std::string> operations;
  for (const KernelPlan& kernel : plan.kernels) operations.push_back(kernel.operation);
  EXPECT_EQ(operations, (std::vector<std::string>{"route", "permute_pad", "gemm_fc1_activation",
                                                  "gemm_fc2", "unpermute"}));
  EXPECT_EQ(find_tensor(plan, "h1"), nullptr);
  const auto& spec = std::get<GroupedGemmSpec>(find_kernel(plan, "gemm_fc1_activation")->spec);
  EXPECT_EQ(spec.epilogue, GemmEpilogue::kActivation);
  EXPECT_TRUE(spec.is_swapped);
  const int64_t rows = 1024 * 8, n = 4096, h = 7168;
  EXPECT_EQ(find_kernel(plan, "gemm_fc1_activation")->min_bytes,
            rows * (2 * h + 4) + 256 * 2 * n * h + layer.max_permuted_rows * 2 * n / 2);
  layer.max_tokens = 1025;
  EXPECT_NE(print_plan(plan_of(layer), true).find("stay apart: an expert has 33 rows in the mean"),
            std::string::npos);
}

TEST(FusedActivationPlan, JoinsTheActivationInBf16WithBiasesOfAlternatingGateAndUp) {
  Layer layer = few_tokens_in_bf16();
  layer.biases = true;
  layer.gate_up_layout = GateUpLayout::kInterleaved;
  const Plan plan = plan_of(layer, {.keep_intermediates = true});
  const KernelPlan* fused = find_kernel(plan, "gemm_fc1_activation");
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(std::get<GroupedGemmSpec>(fused->spec).epilogue, GemmEpilogue::kStoreAndActivation);
  EXPECT_TRUE(std::get<GroupedGemmSpec>(fused->spec).is_interleaved);
}

TEST(FusedActivationPlan, KeepsTheActivationInBf16ApartWhereOthersReadH1OrItIsAsked) {
  Layer layer = few_tokens_in_bf16();
  layer.fuse_activation = false;
  EXPECT_NE(find_kernel(plan_of(layer), "activation"), nullptr);
  layer = few_tokens_in_bf16();
  layer.passes = {Pass::kForward, Pass::kBackward};
  const Plan plan = plan_of(layer);
  EXPECT_NE(find_kernel(plan, "activation"), nullptr);
  EXPECT_NE(print_plan(plan, true).find("stay apart: backward reads h1"), std::string::npos);
}

}  // namespace
}  // namespace moejit::compiler
