// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/planner/training_layers.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <string>

namespace moejit::compiler {
namespace {

std::set<std::string> saved_by(const Plan& plan) {
  return tensors_of_role(plan, TensorRole::kSaved);
}

TEST(BackwardPlan, IsTheChainOfGradients) {
  const std::vector<std::string> wanted = {"quantize_permute_pad_grad",
                                           "gemm_fc2_dgrad",
                                           "activation_backward_quantize_transpose",
                                           "permute_transpose_grad",
                                           "gemm_fc2_wgrad",
                                           "gemm_fc2_wgrad_add",
                                           "permute_transpose_x",
                                           "gemm_fc1_wgrad",
                                           "gemm_fc1_wgrad_add",
                                           "gemm_fc1_dgrad",
                                           "unpermute_grad"};
  EXPECT_EQ(operations_of(plan_of(training_layer()), "backward"), wanted);
}

// Each gradient is used up before the next one is made.
TEST(BackwardPlan, TransposesTheActivationsApartWhereItIsNotToFuse) {
  Layer layer = training_layer();
  layer.fuse_activation_transpose = false;
  const std::vector<std::string> wanted = {"quantize_permute_pad_grad",
                                           "gemm_fc2_dgrad",
                                           "permute_transpose_grad",
                                           "transpose_act",
                                           "gemm_fc2_wgrad",
                                           "gemm_fc2_wgrad_add",
                                           "activation_backward_quantize",
                                           "transpose_dh1",
                                           "permute_transpose_x",
                                           "gemm_fc1_wgrad",
                                           "gemm_fc1_wgrad_add",
                                           "gemm_fc1_dgrad",
                                           "unpermute_grad"};
  EXPECT_EQ(operations_of(plan_of(layer), "backward"), wanted);
}

// Tiles of 128 rows start where groups do: what lies in tiles of pad rows alone would be missed.
TEST(BackwardPlan, FusesTheActivationsTransposesWhereTilesHoldAllRowsAndScales) {
  const auto fuses = [](const Layer& layer) {
    return find_kernel(plan_of(layer), "activation_backward_quantize_transpose") != nullptr;
  };
  Layer layer = training_layer();
  for (const int32_t alignment : {1, 16, 128, 256}) {
    layer.splits_alignment = alignment;
    EXPECT_TRUE(fuses(layer)) << alignment;
  }
  for (const int32_t alignment : {48, 192}) {
    layer.splits_alignment = alignment;
    EXPECT_FALSE(fuses(layer)) << alignment;
  }
  layer = training_layer();
  layer.scale_sharing_k = 2;
  EXPECT_FALSE(fuses(layer));
}

TEST(BackwardPlan, QuantizesDyApartWhereItIsDispatched) {
  Layer layer = training_layer();
  layer.dispatch = Dispatch::kFp8;
  const std::vector<std::string> operations = operations_of(plan_of(layer), "backward");
  EXPECT_EQ(operations[0], "quantize_dy");
  EXPECT_EQ(operations[1], "permute_pad_grad");
}

TEST(BackwardPlan, MakesTheInsidesOfTheExpertsAgain) {
  Layer layer = training_layer();
  layer.recompute = Recompute::kMoeExpert;
  const Plan plan = plan_of(layer);
  const std::vector<std::string> operations = operations_of(plan, "backward");
  EXPECT_EQ(operations[0], "permute_pad");
  EXPECT_EQ(operations[1], "gemm_fc1");  // the activation comes with its gradient
  EXPECT_EQ(std::get<GroupedGemmSpec>(find_kernel(plan, "gemm_fc1")->spec).epilogue,
            GemmEpilogue::kStoreBf16);
}

TEST(BackwardPlan, MakesTheActivationAgainWhereItIsTransposedApart) {
  Layer layer = training_layer();
  layer.recompute = Recompute::kMoeExpert;
  layer.fuse_activation_transpose = false;
  const Plan plan = plan_of(layer);
  EXPECT_EQ(operations_of(plan, "backward")[1], "gemm_fc1_activation_quantize");
  // The forward pass does not write h1, the backward pass does.
  std::vector<GemmEpilogue> epilogues;
  for (const KernelPlan& kernel : plan.kernels)
    if (kernel.operation == "gemm_fc1_activation_quantize")
      epilogues.push_back(std::get<GroupedGemmSpec>(kernel.spec).epilogue);
  EXPECT_EQ(epilogues, (std::vector{GemmEpilogue::kActivationQuantize,
                                    GemmEpilogue::kStoreAndActivationQuantize}));
}

TEST(BackwardPlan, SavesWhatItReadsOfTheForwardPass) {
  const std::set<std::string> small = {"saved_tokens", "counts", "offs", "row_map",
                                       "permuted_probs"};
  std::set<std::string> always = small;
  always.insert({"x_q", "x_scale_inv", "row_tokens"});
  Layer layer = training_layer();
  std::set<std::string> all = always;
  all.insert("h1");
  EXPECT_EQ(saved_by(plan_of(layer)), all);
  layer.fuse_activation_transpose = false;
  all.insert({"act_q", "act_scale_inv"});
  EXPECT_EQ(saved_by(plan_of(layer)), all);
  layer.recompute = Recompute::kMoeExpert;
  EXPECT_EQ(saved_by(plan_of(layer)), always);
  layer.fuse_transpose = false;
  std::set<std::string> permuted = small;
  permuted.insert({"permuted_q", "permuted_scale_inv"});
  EXPECT_EQ(saved_by(plan_of(layer)), permuted);
  layer.passes = {Pass::kForward};
  EXPECT_EQ(saved_by(plan_of(layer)), std::set<std::string>{});
}

// Rows of H and I bytes with a scale for each 128, h1 in bf16; what is small stays below 1 MiB.
TEST(BackwardPlan, SavesAsManyBytesAsTheFormatsHave) {
  constexpr int64_t kRows = 32768, kHidden = 7168, kIntermediate = 2048, kSmall = int64_t{1} << 20;
  constexpr int64_t kTokens = 4096;
  const int64_t row = kHidden + 4 * kHidden / 128;
  const int64_t act = kRows * (kIntermediate + 4 * kIntermediate / 128);
  const int64_t h1 = kRows * 4 * kIntermediate;
  for (const bool fuses : {false, true}) {
    Layer layer = training_layer();
    layer.fuse_transpose = fuses;
    layer.fuse_activation_transpose = fuses;
    const int64_t x = (fuses ? kTokens : kRows) * row;
    const int64_t insides = h1 + (fuses ? 0 : act);
    const int64_t without = plan_of(layer).saved_bytes;
    EXPECT_GE(without, x + insides);
    EXPECT_LT(without, x + insides + kSmall);
    layer.recompute = Recompute::kMoeExpert;
    const int64_t with = plan_of(layer).saved_bytes;
    EXPECT_GE(with, x);
    EXPECT_LT(with, x + kSmall);
  }
}

// Of one row for each token nothing is gained, of several there is.
TEST(BackwardPlan, GathersTokensWhereThatMovesLess) {
  Layer layer = training_layer();
  const auto gathers = [](const Layer& of) {
    return find_kernel(plan_of(of), "permute_transpose_x") != nullptr;
  };
  EXPECT_TRUE(gathers(layer));
  layer.fuse_transpose = false;
  EXPECT_FALSE(gathers(layer));
  layer.fuse_transpose = true;
  layer.max_permuted_rows = 4096;
  EXPECT_FALSE(gathers(layer));
  layer.dispatch = Dispatch::kFp8;  // x_q and dy_q are there anyway
  EXPECT_TRUE(gathers(layer));
  const Plan dispatched = plan_of(layer);
  EXPECT_TRUE(std::get<RowChainSpec>(find_kernel(dispatched, "permute_pad")->spec).tells_tokens);
  const Plan plan = plan_of(training_layer());
  const KernelPlan* x = find_kernel(plan, "permute_transpose_x");
  const KernelPlan* grad = find_kernel(plan, "permute_transpose_grad");
  EXPECT_EQ(std::get<TransposeSpec>(x->spec).source, RowSource::kGathered);
  EXPECT_EQ(std::get<TransposeSpec>(grad->spec).source, RowSource::kGatheredAll);
  EXPECT_LT(x->min_bytes, find_kernel(plan, "quantize_permute_pad")->min_bytes);
  EXPECT_TRUE(std::get<RowChainSpec>(find_kernel(plan, "quantize_permute_pad")->spec).tells_tokens);
}

TEST(BackwardPlan, NoSavedTensorsOverlap) {
  const Plan plan = plan_of(training_layer());
  std::vector<const TensorPlan*> saved;
  for (const TensorPlan& tensor : plan.tensors)
    if (tensor.role == TensorRole::kSaved) saved.push_back(&tensor);
  std::ranges::sort(saved, {}, &TensorPlan::saved_offset);
  int64_t end = 0;
  for (const TensorPlan* tensor : saved) {
    EXPECT_GE(tensor->saved_offset, end) << tensor->name;
    EXPECT_EQ(tensor->saved_offset % 256, 0) << tensor->name;
    end = tensor->saved_offset + tensor->bytes;
  }
  EXPECT_LE(end, plan.saved_bytes);
}

// Workspace is nobody's between two calls: what the backward pass finds there it has written.
TEST(BackwardPlan, ReadsNoWorkspaceOfTheForwardPass) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kMoeExpert}) {
    Layer layer = training_layer();
    layer.recompute = recompute;
    const Plan plan = plan_of(layer);
    for (const TensorPlan& tensor : plan.tensors) {
      if (tensor.role != TensorRole::kWorkspace || !touches_in(plan, "forward", tensor)) continue;
      const bool is_made_again =
          recompute == Recompute::kMoeExpert &&
          (tensor.name == "permuted_q" || tensor.name == "permuted_scale_inv");
      EXPECT_EQ(touches_in(plan, "backward", tensor), is_made_again) << tensor.name;
    }
  }
}

TEST(BackwardPlan, HasAKernelForEachWayToLeaveAWeightGradient) {
  const Plan plan = plan_of(training_layer());
  for (const std::string name : {"gemm_fc1_wgrad", "gemm_fc2_wgrad"}) {
    const KernelPlan* overwrites = find_kernel(plan, name);
    const KernelPlan* adds = find_kernel(plan, name + "_add");
    ASSERT_NE(overwrites, nullptr);
    ASSERT_NE(adds, nullptr);
    EXPECT_EQ(overwrites->gradient_mode, "overwrite");
    EXPECT_EQ(adds->gradient_mode, "add");
    EXPECT_EQ(std::get<ContractionGroupedGemmSpec>(adds->spec).output, GradientOutput::kF32Add);
  }
  EXPECT_EQ(find_kernel(plan, "gemm_fc1_dgrad")->gradient_mode, "");
}

TEST(BackwardPlan, AddsToWeightGradientsOfBf16IfItMay) {
  Layer layer = training_layer();
  layer.wgrad_dtype = WgradDtype::kBf16;
  const Plan plan = plan_of(layer);
  for (const std::string name : {"gemm_fc1_wgrad_add", "gemm_fc2_wgrad_add"}) {
    const auto& spec = std::get<ContractionGroupedGemmSpec>(find_kernel(plan, name)->spec);
    EXPECT_EQ(spec.output, GradientOutput::kBf16Add);
    EXPECT_GE(spec.panels_loaded, spec.wide_columns / 64) << "L2 would add rounded sums";
  }
}

TEST(BackwardPlan, OverwritesWeightGradientsOfBf16) {
  for (const Recipe& recipe : {Recipe::kFp8Flow, Recipe::kBf16}) {
    Layer layer = training_layer();
    layer.recipe = recipe;
    layer.biases = true;
    layer.wgrad_dtype = WgradDtype::kBf16;
    layer.fuse_wgrad_accumulation = false;
    const Plan plan = plan_of(layer);
    EXPECT_EQ(find_tensor(plan, "dw1")->dtype, DType::kBF16);
    EXPECT_EQ(find_tensor(plan, "dw2")->dtype, DType::kBF16);
    EXPECT_EQ(find_tensor(plan, "db1")->dtype, DType::kF32);
    for (const std::string name : {"gemm_fc1_wgrad", "gemm_fc2_wgrad"}) {
      const KernelPlan* kernel = find_kernel(plan, name);
      ASSERT_NE(kernel, nullptr);
      EXPECT_EQ(std::get<ContractionGroupedGemmSpec>(kernel->spec).output, GradientOutput::kBf16);
    }
    for (const KernelPlan& kernel : plan.kernels)
      EXPECT_NE(kernel.gradient_mode, "add") << kernel.operation;
  }
}

TEST(BackwardPlan, StartsColumnsElsewhereOnlyWhereRowsDoNotStartAtMultiplesOf128) {
  Layer layer = training_layer();
  EXPECT_EQ(find_tensor(plan_of(layer), "colwise_offs"), nullptr);
  layer.splits_alignment = 16;
  const Plan plan = plan_of(layer);
  ASSERT_NE(find_tensor(plan, "colwise_offs"), nullptr);
  EXPECT_TRUE(std::get<RouteSpec>(find_kernel(plan, "route")->spec).has_colwise_offs);
  // Each group may need 127 more columns than it has rows.
  EXPECT_GE(128 * find_tensor(plan, "x_colwise_q")->shape[0].value, 32768 + 8 * 127);
}

TEST(BackwardPlan, FillsUpGatesThatEndWithinAScaleBlock) {
  Layer layer = training_layer();
  layer.intermediate = 2880;
  const Plan plan = plan_of(layer);
  constexpr int64_t kPadded = 23 * 128;
  EXPECT_EQ(find_tensor(plan, "dh1_q")->shape[1].value, 2 * kPadded);
  EXPECT_EQ(find_tensor(plan, "dh1_scale_inv")->shape[1].value, 2 * 23);
  EXPECT_EQ(find_tensor(plan, "w1_colwise_q")->shape[2].value, 2 * kPadded);
  EXPECT_EQ(find_tensor(plan, "dh1_colwise_q")->shape[1].value, 2 * kPadded);
  EXPECT_EQ(find_tensor(plan, "dw1")->shape[1].value, 2 * 2880);
  EXPECT_EQ(find_tensor(plan, "act_colwise_q")->shape[1].value, 2880);
  EXPECT_EQ(std::get<GroupedGemmSpec>(find_kernel(plan, "gemm_fc1_dgrad")->spec).k, 2 * kPadded);
  const auto& wgrad =
      std::get<ContractionGroupedGemmSpec>(find_kernel(plan, "gemm_fc1_wgrad")->spec);
  EXPECT_EQ(wgrad.rows, 2 * kPadded);
  EXPECT_EQ(wgrad.sections, 2);
  EXPECT_EQ(wgrad.section_rows, 2880);
  // A matrix of D for gate and one for up of every expert.
  const auto& maps = find_kernel(plan, "gemm_fc1_wgrad")->tensor_maps;
  EXPECT_EQ(maps.back().box.dims, (std::array<int64_t, 4>{7168, 2880, 16}));
}

Layer bf16_layer() {
  Layer layer = training_layer();
  layer.recipe = Recipe::kBf16;
  return layer;
}

TEST(Bf16Plan, MultipliesTokensAndWeightsAsTheyAre) {
  const Plan plan = plan_of(bf16_layer());
  EXPECT_EQ(operations_of(plan, "weights"), std::vector<std::string>{});
  EXPECT_EQ(operations_of(plan, "forward"),
            (std::vector<std::string>{"route", "permute_pad", "gemm_fc1", "activation", "gemm_fc2",
                                      "unpermute"}));
  EXPECT_EQ(operations_of(plan, "backward"),
            (std::vector<std::string>{"permute_pad_grad", "gemm_fc2_dgrad", "gemm_fc2_wgrad",
                                      "gemm_fc2_wgrad_add", "activation_backward", "gemm_fc1_wgrad",
                                      "gemm_fc1_wgrad_add", "gemm_fc1_dgrad", "unpermute_grad"}));
  EXPECT_EQ(plan.quantized_weight_bytes, 0);
  for (const TensorPlan& tensor : plan.tensors)
    EXPECT_NE(tensor.dtype, DType::kF8E4M3) << tensor.name;
  EXPECT_TRUE(touches_in(plan, "forward", *find_tensor(plan, "w1")));
  EXPECT_TRUE(touches_in(plan, "backward", *find_tensor(plan, "w1")));
}

TEST(Bf16Plan, SavesTheRowsOfTheirFormat) {
  constexpr int64_t kRows = 32768, kHidden = 7168, kIntermediate = 2048, kSmall = int64_t{1} << 20;
  Layer layer = bf16_layer();
  const int64_t without = plan_of(layer).saved_bytes;
  EXPECT_GE(without, 2 * kRows * (kHidden + 3 * kIntermediate));
  EXPECT_LT(without, 2 * kRows * (kHidden + 3 * kIntermediate) + kSmall);
  layer.recompute = Recompute::kMoeExpert;
  const Plan with = plan_of(layer);
  EXPECT_EQ(saved_by(with), (std::set<std::string>{"saved_tokens", "counts", "offs", "row_map",
                                                   "permuted_probs", "permuted"}));
  EXPECT_EQ(operations_of(with, "backward").front(), "gemm_fc1");
}

TEST(Bf16Plan, RefusesWhatItHasNoKernelsFor) {
  Layer layer = bf16_layer();
  layer.recipe = Recipe::kMxfp8;
  layer.splits_alignment = 48;
  Result<Plan> plan = plan_layer(layer, Target{});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(plan.error().hint, "it can run: multiples of 32, the rows that share a scale");
  layer.passes = {Pass::kForward};
  EXPECT_TRUE(plan_layer(layer, Target{}));
  layer.recipe = Recipe::kBf16;
  layer.dispatch = Dispatch::kFp8;
  plan = plan_layer(layer, Target{});
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("dispatch \"fp8\""), std::string::npos)
      << plan.error().message;
}

TEST(SavedMemory, IsComparedWithBf16AndWithRecomputation) {
  const Plan plan = plan_of(training_layer());
  const std::vector<SavedMemory> all = compare_saved_memory(plan);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].recipe, Recipe::kFp8Flow);
  EXPECT_EQ(all[0].bytes, plan.saved_bytes);
  EXPECT_EQ(all[1].recompute, Recompute::kMoeExpert);
  EXPECT_LT(all[1].bytes, all[0].bytes / 2);
  EXPECT_EQ(all[2].recipe, Recipe::kBf16);
  EXPECT_EQ(all[2].bytes, plan_of(bf16_layer()).saved_bytes);
  EXPECT_NE(print_plan(plan, false).find("bf16       with recompute none"), std::string::npos);
  EXPECT_EQ(compare_saved_memory(plan_of(dsv3_like_layer())).size(), 0U);
}

TEST(SavedMemory, IsComparedWithBf16WhateverTheAlignment) {
  Layer layer = training_layer();
  layer.splits_alignment = 16;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  EXPECT_EQ(compare_saved_memory(plan_of(layer)).size(), 4U);
}

}  // namespace
}  // namespace moejit::compiler
