// SPDX-License-Identifier: Apache-2.0
// Which launches overlap, and what GEMMs do ahead of the wait.
#include "compiler/launch.h"
#include "compiler/planner/grouped_gemm.h"
#include "tests/unit/planner/planner_layers.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <variant>

namespace moejit::compiler {
namespace {

Layer small_calls(int64_t max_tokens) {
  Layer layer = dsv3_like_layer();
  layer.max_tokens = max_tokens;
  layer.splits_alignment = 1;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return layer;
}

int64_t overlapping(const Plan& plan) {
  return std::ranges::count_if(plan.kernels,
                               [](const KernelPlan& kernel) { return kernel.launch.overlaps; });
}

// Returns a kernel whose name begins so: gemm_fc1 may activate, too.
const KernelPlan& gemm_of(const Plan& plan, std::string_view name) {
  const auto found = std::ranges::find_if(
      plan.kernels, [&](const KernelPlan& kernel) { return kernel.operation.starts_with(name); });
  EXPECT_NE(found, plan.kernels.end()) << name;
  return found != plan.kernels.end() ? *found : plan.kernels.front();  // which is no GEMM
}

GemmOverlap gemm_overlap(const Plan& plan, std::string_view name) {
  return std::get<GroupedGemmSpec>(gemm_of(plan, name).spec).overlap;
}

TEST(OverlapPlan, HasAllKernelsOfSmallForwardCalls) {
  const Plan plan = plan_of(small_calls(512));
  for (const KernelPlan& kernel : plan.kernels)
    EXPECT_EQ(kernel.launch.overlaps, kernel.phase == "forward") << kernel.operation;
  EXPECT_NE(plan_to_json(plan).find(R"("overlaps": true)"), std::string::npos);
  EXPECT_NE(plan.reasons.back().find("launches of forward overlap"), std::string::npos);
}

TEST(OverlapPlan, HasNoneOfLargerCallsOrWithABackwardPass) {
  EXPECT_EQ(overlapping(plan_of(small_calls(513))), 0);
  Layer layer = small_calls(64);
  layer.splits_alignment = 128;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  EXPECT_GT(overlapping(plan_of(layer)), 0);
  layer.passes = {Pass::kForward, Pass::kBackward};
  const Plan plan = plan_of(layer);
  EXPECT_EQ(overlapping(plan), 0);
  EXPECT_EQ(plan_to_json(plan).find("overlap"), std::string::npos);
}

TEST(OverlapPlan, LoadsWeightsAheadUnlessTheKernelBeforeSaysWhich) {
  const Plan plan = plan_of(small_calls(512));
  EXPECT_EQ(gemm_overlap(plan, "gemm_fc1"), GemmOverlap::kLoadsB);
  EXPECT_EQ(gemm_overlap(plan, "gemm_fc2"), GemmOverlap::kLoadsB);
  GroupedGemmSpec gemm = std::get<GroupedGemmSpec>(gemm_of(plan, "gemm_fc1").spec);
  EXPECT_EQ(overlap_of(gemm, true, false), GemmOverlap::kBarriers);
  // CTAs that share A have B of their own.
  EXPECT_EQ(overlap_of(with_shared_a(gemm), false, true), GemmOverlap::kLoadsB);
  gemm.is_swapped = false;
  EXPECT_EQ(overlap_of(gemm, false, true), GemmOverlap::kBarriers);
}

// One kernel routes and permutes. What it will write about groups is in the ids, too.
TEST(OverlapPlan, FindsGroupsInIdsWhereTheKernelBeforeRoutes) {
  Layer layer = small_calls(64);
  layer.topk_ids_dtype = IndexDtype::kI64;
  const Plan plan = plan_of(layer);
  EXPECT_TRUE(find_kernel(plan, "route_quantize_permute_pad")->launch.overlaps);
  EXPECT_EQ(gemm_overlap(plan, "gemm_fc1"), GemmOverlap::kFindsGroups);
  EXPECT_EQ(gemm_overlap(plan, "gemm_fc2"), GemmOverlap::kLoadsB);
  const KernelPlan& gemm = gemm_of(plan, "gemm_fc1");
  EXPECT_EQ(std::get<GroupedGemmSpec>(gemm.spec).topk_ids_dtype, DType::kI64);
  EXPECT_EQ(std::ranges::count(gemm.arguments, "topk_ids", &KernelArgument::tensor), 1);
  EXPECT_EQ(gemm.launch.shared_bytes, launch_shape(gemm.spec).shared_bytes);
  EXPECT_LE(gemm.launch.shared_bytes, Target{}.shared_memory_bytes);
}

// Counts of ids tell nothing of pad rows and of rows that are dropped.
TEST(OverlapPlan, WaitsForRoutesThatIdsDoNotTell) {
  Layer padded = small_calls(64);
  padded.splits_alignment = 16;
  padded.max_permuted_rows = worst_case_permuted_rows(padded);
  Layer dropping = small_calls(64);
  dropping.max_permuted_rows = 64 * dropping.top_k - 1;
  for (const Layer& layer : {padded, dropping})
    EXPECT_EQ(gemm_overlap(plan_of(layer), "gemm_fc1"), GemmOverlap::kBarriers);
}

// Ids in the workspace may be overwritten by what the GEMM itself writes.
TEST(OverlapPlan, ReadsNoIdsOfTheWorkspaceAhead) {
  Layer shared = small_calls(64);
  shared.shared.experts = 1;
  shared.max_permuted_rows = worst_case_permuted_rows(shared);
  const Plan plan = plan_of(shared);
  EXPECT_TRUE(gemm_of(plan, "gemm_fc1").launch.overlaps);
  EXPECT_EQ(gemm_overlap(plan, "gemm_fc1"), GemmOverlap::kBarriers);
  Layer routing = small_calls(64);
  routing.router = RouterFormula{};  // whose ids are the caller's memory
  EXPECT_EQ(gemm_overlap(plan_of(routing), "gemm_fc1"), GemmOverlap::kFindsGroups);
}

// Grouped rows have no permute between counts and the first GEMM.
TEST(OverlapPlan, WaitsForCountsOfTheKernelBefore) {
  Layer layer = small_calls(64);
  layer.top_k = 1;
  layer.input = LayerInput::kGrouped;
  layer.recipe = Recipe::kBf16;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  const Plan plan = plan_of(layer);
  EXPECT_TRUE(gemm_of(plan, "gemm_fc1").launch.overlaps);
  EXPECT_EQ(gemm_overlap(plan, "gemm_fc1"), GemmOverlap::kBarriers);
}

}  // namespace
}  // namespace moejit::compiler
