// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/planner/planner_layers.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <string>

namespace moejit::compiler {
namespace {

std::vector<std::string> operation_names(const Plan& plan) {
  std::vector<std::string> names;
  for (const KernelPlan& kernel : plan.kernels) names.push_back(kernel.operation);
  return names;
}

TEST(Planner, JoinsQuantizeAndPermutePadWhereNothingIsDispatched) {
  Layer layer = dsv3_like_layer();
  layer.fuse_activation = false;
  const Plan plan = plan_of(layer);
  const std::vector<std::string> wanted = {
      "quantize_w1", "quantize_w2",         "route",    "quantize_permute_pad",
      "gemm_fc1",    "activation_quantize", "gemm_fc2", "unpermute"};
  EXPECT_EQ(operation_names(plan), wanted);
  EXPECT_EQ(find_tensor(plan, "x_q"), nullptr);
}

TEST(Planner, KeepsQuantizeApartWhereRowsAreDispatched) {
  Layer layer = dsv3_like_layer();
  layer.dispatch = Dispatch::kFp8;
  layer.fuse_activation = false;
  const Plan plan = plan_of(layer);
  const std::vector<std::string> wanted = {
      "quantize_w1", "quantize_w2",         "quantize", "route",    "permute_pad",
      "gemm_fc1",    "activation_quantize", "gemm_fc2", "unpermute"};
  EXPECT_EQ(operation_names(plan), wanted);
  EXPECT_NE(find_tensor(plan, "x_q"), nullptr);
}

TEST(Planner, JoinsTheFirstGemmAndTheActivation) {
  const Plan plan = plan_of(dsv3_like_layer());
  const std::vector<std::string> wanted = {
      "quantize_w1", "quantize_w2", "route", "quantize_permute_pad", "gemm_fc1_activation_quantize",
      "gemm_fc2",    "unpermute"};
  EXPECT_EQ(operation_names(plan), wanted);
  EXPECT_EQ(find_tensor(plan, "h1"), nullptr);
  const KernelPlan* fused = find_kernel(plan, "gemm_fc1_activation_quantize");
  EXPECT_EQ(std::get<GroupedGemmSpec>(fused->spec).epilogue, GemmEpilogue::kActivationQuantize);
  EXPECT_GT(std::get<GroupedGemmSpec>(fused->spec).epsilon, 0.0f);
}

TEST(Planner, KeptIntermediatesIncludeGateAndUpOfTheFusedKernel) {
  const Plan plan = plan_of(dsv3_like_layer(), {.keep_intermediates = true});
  EXPECT_NE(find_tensor(plan, "h1"), nullptr);
  const KernelPlan* fused = find_kernel(plan, "gemm_fc1_activation_quantize");
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(std::get<GroupedGemmSpec>(fused->spec).epilogue,
            GemmEpilogue::kStoreAndActivationQuantize);
}

TEST(Planner, KeptIntermediatesIncludeTheQuantizedRowsOfTheFusedKernel) {
  const Plan plan = plan_of(dsv3_like_layer(), {.keep_intermediates = true});
  EXPECT_NE(find_tensor(plan, "x_q"), nullptr);
  const KernelPlan* fused = find_kernel(plan, "quantize_permute_pad");
  ASSERT_NE(fused, nullptr);
  EXPECT_EQ(std::get<RowChainSpec>(fused->spec).store, StoreStage::kRowsAndPermuted);
}

TEST(Planner, BindsEveryArgumentToATensorAndEveryTensorToAKernel) {
  for (const Dispatch dispatch : {Dispatch::kNone, Dispatch::kFp8}) {
    for (const bool keep : {false, true}) {
      Layer layer = dsv3_like_layer();
      layer.dispatch = dispatch;
      layer.fuse_activation = keep == (dispatch == Dispatch::kFp8);
      const Plan plan = plan_of(layer, {.keep_intermediates = keep});
      std::set<std::string> used;
      for (const KernelPlan& kernel : plan.kernels) {
        std::set<std::string> roles;
        for (const KernelArgument& argument : kernel.arguments) {
          EXPECT_NE(find_tensor(plan, argument.tensor), nullptr) << argument.tensor;
          EXPECT_TRUE(roles.insert(argument.role).second) << kernel.operation << argument.role;
          used.insert(argument.tensor);
        }
        for (const TensorMapPlan& map : kernel.tensor_maps) {
          EXPECT_NE(find_tensor(plan, map.tensor), nullptr) << map.tensor;
          EXPECT_TRUE(roles.insert(map.role).second) << kernel.operation << map.role;
          used.insert(map.tensor);
        }
      }
      for (const TensorPlan& tensor : plan.tensors)
        EXPECT_TRUE(used.contains(tensor.name)) << tensor.name;
    }
  }
}

TEST(Planner, CountsTheLeastBytesOfMemoryBoundKernels) {
  // Hand-computed from the byte column of the kernel table: T = 4096, H = 7168, K = 8, 56 scale
  // blocks of 4 bytes a row.
  Layer layer = dsv3_like_layer();
  layer.dispatch = Dispatch::kFp8;
  layer.fuse_activation = false;
  const Plan plan = plan_of(layer);
  const int64_t t = 4096, h = 7168, p = layer.max_permuted_rows, scales = 224;
  EXPECT_EQ(find_kernel(plan, "quantize")->min_bytes, t * (2 * h + h + scales));
  EXPECT_EQ(find_kernel(plan, "permute_pad")->min_bytes,
            t * (h + scales) + p * (h + scales + 4) + 2 * 4 * t * 8);
  EXPECT_EQ(find_kernel(plan, "activation_quantize")->min_bytes,
            t * 8 * (2 * 4096 + 4) + p * (2048 + 64));
  EXPECT_EQ(find_kernel(plan, "gemm_fc1")->multiply_adds, t * 8 * 4096 * 7168);
}

// 8 choices of a token.
TEST(Planner, CountsTheWeightsOfAsManyExpertsAsRowsCanReach) {
  Layer layer = dsv3_like_layer();
  layer.max_tokens = 1;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  layer.fuse_activation = false;
  const int64_t n = 4096, h = 7168, p = layer.max_permuted_rows;
  EXPECT_EQ(find_kernel(plan_of(layer), "gemm_fc1")->min_bytes,
            8 * (h + 224) + 8 * (n * h + 4 * 32 * 56) + 2 * p * n);
}

TEST(Planner, SwapsTilesWhereExpertsHaveAtMost32RowsInTheMean) {
  Layer layer = dsv3_like_layer();
  layer.fuse_activation = false;
  const auto spec_of = [&](const char* name) {
    return std::get<GroupedGemmSpec>(find_kernel(plan_of(layer), name)->spec);
  };
  EXPECT_FALSE(spec_of("gemm_fc1").is_swapped);
  layer.max_permuted_rows = 256 * 32;
  EXPECT_TRUE(spec_of("gemm_fc1").is_swapped);

  layer.max_tokens = 1024;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  for (const char* name : {"gemm_fc1", "gemm_fc2"}) {
    EXPECT_TRUE(spec_of(name).is_swapped);
    EXPECT_EQ(spec_of(name).tile_rows, 128);
  }
  EXPECT_EQ(find_kernel(plan_of(layer), "gemm_fc1")->reasons.front(),
            "swapped tiles: 1024 tokens give an expert 32 rows in the mean, no more than 32");
  layer.max_tokens = 1025;
  EXPECT_FALSE(spec_of("gemm_fc1").is_swapped);
  layer.max_tokens = 30;
  EXPECT_EQ(spec_of("gemm_fc2").tile_rows, 32);
}

// A rank of eight has an eighth of the rows.
TEST(Planner, ChoosesTilesForTheRowsThatARankOfSeveralHasInTheMean) {
  Layer layer = dsv3_like_layer();
  layer.passes = {Pass::kForward, Pass::kBackward};
  layer.max_tokens = 8192;
  for (const int64_t local_experts : {256, 32}) {
    layer.local_experts = local_experts;
    layer.max_permuted_rows = worst_case_permuted_rows(layer);
    const Plan plan = plan_of(layer);
    const std::string& gemm = find_kernel(plan, "gemm_fc1_dgrad")->problem;
    const std::string& wgrad = find_kernel(plan, "gemm_fc2_wgrad")->problem;
    EXPECT_TRUE(gemm.ends_with(" rows=256")) << gemm;
    EXPECT_TRUE(wgrad.ends_with(" columns=256")) << wgrad;
  }
  // However many rows memory is planned for: all 1024 tokens may go to each of the 32 experts.
  layer.passes = {Pass::kForward};
  layer.max_tokens = 1024;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  layer.fuse_activation = false;
  EXPECT_TRUE(std::get<GroupedGemmSpec>(find_kernel(plan_of(layer), "gemm_fc2")->spec).is_swapped);
}

TEST(Planner, CountsWhatTheFusedGemmNeitherWritesNorReads) {
  Layer layer = dsv3_like_layer();
  const KernelPlan fused = *find_kernel(plan_of(layer), "gemm_fc1_activation_quantize");
  const KernelPlan kept =
      *find_kernel(plan_of(layer, {.keep_intermediates = true}), "gemm_fc1_activation_quantize");
  layer.fuse_activation = false;
  const Plan apart = plan_of(layer);
  const KernelPlan* gemm = find_kernel(apart, "gemm_fc1");
  const KernelPlan* activation = find_kernel(apart, "activation_quantize");
  const int64_t read = 4096 * 8 * 2 * 4096, written = layer.max_permuted_rows * 2 * 4096;
  EXPECT_EQ(fused.min_bytes, gemm->min_bytes + activation->min_bytes - read - written);
  EXPECT_EQ(kept.min_bytes, fused.min_bytes + written);
  EXPECT_EQ(fused.multiply_adds, gemm->multiply_adds);
}

TEST(Planner, GivesRouteAsManyWarpsAsSharedMemoryHolds) {
  EXPECT_EQ(std::get<RouteSpec>(find_kernel(plan_of(dsv3_like_layer()), "route")->spec).warps, 32);

  Layer many = dsv3_like_layer();
  many.experts = many.local_experts = 4096;
  many.max_permuted_rows = worst_case_permuted_rows(many);
  const Plan plan = plan_of(many);
  const KernelPlan* route = find_kernel(plan, "route");
  EXPECT_LE(route->launch.shared_bytes, Target{}.shared_memory_bytes);
  EXPECT_GE(std::get<RouteSpec>(route->spec).warps, 1);
}

TEST(Planner, LaunchesEnoughCtasForThePadRowsOfFewTokens) {
  Layer layer = dsv3_like_layer();
  layer.max_tokens = 16;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  const Plan plan = plan_of(layer);
  // 128 choices reach 128 experts with 127 pad rows each, 8 to a row's share; 56 segments of 128
  // columns a row, 16 a CTA.
  EXPECT_EQ(find_kernel(plan, "route_quantize_permute_pad")->launch.max_ctas,
            128 * 127 / 8 * 56 / 16);
}

// Most launches of such layers end at once: tens of thousands of CTAs take 30 us to do nothing.
TEST(Planner, GivesCheckedWeightsFewCtas) {
  for (const Recipe& recipe : kRecipes)
    for (const std::vector<Pass>& passes :
         {std::vector{Pass::kForward}, std::vector{Pass::kForward, Pass::kBackward}}) {
      Layer layer = dsv3_like_layer();
      layer.recipe = recipe;
      layer.passes = passes;
      layer.weight_checks = true;
      int32_t casts = 0;
      for (const KernelPlan& kernel : plan_of(layer).kernels) {
        if (kernel.phase != "weights") continue;
        const LaunchShape& launch = kernel.launch;
        const int64_t limit =
            launch.ctas_per_sm > 0 ? int64_t{launch.ctas_per_sm} * 132 : launch.max_ctas;
        EXPECT_LE(limit, 8 * 132) << recipe.name << " " << kernel.operation;
        EXPECT_LE(launch.ctas_per_sm * launch.threads, 1024)
            << recipe.name << " " << kernel.operation;
        if (launch.max_ctas > 1) ++casts;
      }
      EXPECT_GE(casts, recipe == Recipe::kBf16 ? 0 : 2) << recipe.name;
    }
}

TEST(Planner, KeepsEveryCtaOfTheCastsOfOtherWeights) {
  Layer layer = dsv3_like_layer();
  layer.recipe = Recipe::kNvfp4;
  EXPECT_EQ(find_kernel(plan_of(layer), "quantize_w1")->launch.ctas_per_sm, 0);
}

TEST(Planner, LetsEveryKernelKnowThatScaleBlocksShareTheirScales) {
  Layer layer = dsv3_like_layer();
  layer.dispatch = Dispatch::kFp8;
  layer.scale_sharing_k = 2;
  const Plan plan = plan_of(layer);
  for (const char* name : {"quantize", "activation_quantize"}) {
    EXPECT_EQ(std::get<RowChainSpec>(find_kernel(plan, name)->spec).quantize,
              QuantizeStage::k1x128Pairs)
        << name;
  }
  for (const char* name : {"quantize_w1", "quantize_w2"})
    EXPECT_EQ(std::get<TileChainSpec>(find_kernel(plan, name)->spec).tiles_per_scale, 2) << name;
  for (const char* name : {"gemm_fc1", "gemm_fc2"})
    EXPECT_EQ(std::get<GroupedGemmSpec>(find_kernel(plan, name)->spec).blocks_per_promotion, 2)
        << name;
  layer.dispatch = Dispatch::kNone;
  const Plan fused = plan_of(layer);
  EXPECT_EQ(std::get<RowChainSpec>(find_kernel(fused, "quantize_permute_pad")->spec).quantize,
            QuantizeStage::k1x128Pairs);
}

TEST(Planner, GivesEveryGemmAnOutputForItsClockWhereAsked) {
  const Plan plain = plan_layer(dsv3_like_layer(), {}).value();
  const Plan measured = plan_layer(dsv3_like_layer(), {}, {.measure_gemms = true}).value();
  EXPECT_EQ(find_tensor(plain, "gemm_fc1_activation_quantize_elapsed"), nullptr);
  for (const std::string operation : {"gemm_fc1_activation_quantize", "gemm_fc2"}) {
    const TensorPlan* tensor = find_tensor(measured, operation + "_elapsed");
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->dtype, DType::kI64);
    EXPECT_EQ(tensor->bytes, 16);
    EXPECT_EQ(tensor->role, TensorRole::kOutput);
    const KernelPlan& kernel = *find_kernel(measured, operation);
    EXPECT_EQ(kernel.arguments.back(),
              (KernelArgument{"elapsed", operation + "_elapsed", Access::kWrite}));
    EXPECT_EQ(kernel.spec, find_kernel(plain, operation)->spec);
  }
  EXPECT_EQ(measured.workspace_bytes, plain.workspace_bytes);
}

TEST(Planner, LetsCallersSkipUpdatesOfWeights) {
  const Plan plan = plan_of(dsv3_like_layer());
  const TensorPlan* skip = find_tensor(plan, "skip_update");
  ASSERT_NE(skip, nullptr);
  EXPECT_TRUE(skip->is_optional);
  EXPECT_EQ(skip->dtype, DType::kU32);
  EXPECT_EQ(skip->bytes, 4);
  for (const KernelPlan& kernel : plan.kernels)
    EXPECT_EQ(touches(kernel, "skip_update"), kernel.phase == "weights") << kernel.operation;
  EXPECT_EQ(std::ranges::count(plan.tensors, true, &TensorPlan::is_optional), 1);
}

TEST(Planner, IsAPureFunction) {
  EXPECT_EQ(plan_of(dsv3_like_layer()), plan_of(dsv3_like_layer()));
}

TEST(Planner, RefusesARecipeAndListsWhatTheTargetRuns) {
  Layer layer = dsv3_like_layer();
  layer.recipe = {.name = "fp3", .has_kernels = false};
  const Result<Plan> plan = plan_layer(layer, Target{});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(plan.error().message,
            "layer \"dsv3-like\": recipe \"fp3\" does not run on target cuda:sm_90a");
  EXPECT_EQ(plan.error().hint,
            "it can run: bf16, fp8_flow, fp8_blockwise, fp8_delayed, fp8_current, fp8_rowwise, "
            "mxfp8, nvfp4");
}

TEST(Planner, SaysThatASmallBoundDropsRows) {
  Layer layer = dsv3_like_layer();
  layer.max_permuted_rows = 8192;
  const Plan plan = plan_of(layer);
  EXPECT_NE(plan.reasons.front().find("P = 8192 rows, fewer than"), std::string::npos);
}

TEST(PrintPlan, ShowsReasonsOnlyWhenAsked) {
  const Plan plan = plan_of(dsv3_like_layer());
  EXPECT_EQ(print_plan(plan, false).find("saves"), std::string::npos);
  EXPECT_NE(print_plan(plan, true).find("14336 bytes a token less"), std::string::npos);
}

}  // namespace
}  // namespace moejit::compiler
