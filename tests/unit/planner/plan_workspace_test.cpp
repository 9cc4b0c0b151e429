// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/planner/planner_layers.h"

#include <gtest/gtest.h>

namespace moejit::compiler {
namespace {

struct Span {
  const TensorPlan* tensor;
  int64_t begin, end;
};

std::vector<Span> workspace_spans(const Plan& plan) {
  std::vector<Span> spans;
  for (const TensorPlan& tensor : plan.tensors)
    if (tensor.role == TensorRole::kWorkspace)
      spans.push_back({&tensor, tensor.workspace_offset, tensor.workspace_offset + tensor.bytes});
  return spans;
}

bool memory_overlaps(const Span& a, const Span& b) { return a.begin < b.end && b.begin < a.end; }

bool lives_overlap(const Span& a, const Span& b) {
  return a.tensor->first_use <= b.tensor->last_use && b.tensor->first_use <= a.tensor->last_use;
}

TEST(PlanWorkspace, NeverOverlapsTensorsThatLiveTogether) {
  const Result<Plan> plan = plan_layer(dsv3_like_layer(), Target{});
  ASSERT_TRUE(plan);
  const std::vector<Span> spans = workspace_spans(*plan);
  for (const Span& a : spans) {
    EXPECT_EQ(a.begin % 256, 0) << a.tensor->name;
    EXPECT_LE(a.end, plan->workspace_bytes) << a.tensor->name;
    for (const Span& b : spans) {
      if (a.tensor == b.tensor || !memory_overlaps(a, b)) continue;
      EXPECT_FALSE(lives_overlap(a, b)) << a.tensor->name << " and " << b.tensor->name;
    }
  }
}

// A and D of a GEMM are known to it by their tensor maps.
TEST(PlanWorkspace, KeepsATensorAsLongAsATensorMapNamesIt) {
  const Result<Plan> plan = plan_layer(dsv3_like_layer(), Target{});
  ASSERT_TRUE(plan);
  for (const auto& [tensor, last] :
       {std::pair("permuted_q", "gemm_fc1_activation_quantize"), {"act_q", "gemm_fc2"}}) {
    const int32_t last_use = find_tensor(*plan, tensor)->last_use;
    ASSERT_GE(last_use, 0);
    EXPECT_EQ(plan->kernels[static_cast<size_t>(last_use)].operation, last);
  }
}

TEST(PlanWorkspace, SharesMemoryBetweenTensorsThatDoNotLiveTogether) {
  const Result<Plan> shared = plan_layer(dsv3_like_layer(), Target{});
  const Result<Plan> kept = plan_layer(dsv3_like_layer(), Target{}, {.keep_intermediates = true});
  ASSERT_TRUE(shared && kept);
  EXPECT_LT(shared->workspace_bytes, kept->workspace_bytes);
}

TEST(PlanWorkspace, KeepsEveryIntermediateApartWhenAsked) {
  const Result<Plan> plan = plan_layer(dsv3_like_layer(), Target{}, {.keep_intermediates = true});
  ASSERT_TRUE(plan);
  const std::vector<Span> spans = workspace_spans(*plan);
  for (const Span& a : spans)
    for (const Span& b : spans)
      if (a.tensor != b.tensor) {
        EXPECT_FALSE(memory_overlaps(a, b)) << a.tensor->name << " and " << b.tensor->name;
      }
}

}  // namespace
}  // namespace moejit::compiler
