// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/planner/planner_layers.h"

#include <algorithm>
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

// Kernels of a call from the first to the last that touch the tensor.
std::vector<size_t> life_of(const Plan& plan, const TensorPlan& tensor) {
  const auto call_of = [](const KernelPlan& kernel) {
    return std::pair(kernel.phase, kernel.half == "weights");
  };
  std::vector<size_t> life;
  using Call = std::pair<std::string_view, bool>;
  for (const Call& call : {Call("weights", false), Call("forward", false), Call("backward", false),
                           Call("backward", true)}) {
    std::vector<size_t> uses;
    for (size_t i = 0; i < plan.kernels.size(); ++i)
      if (call_of(plan.kernels[i]) == call && touches(plan.kernels[i], tensor.name))
        uses.push_back(i);
    if (uses.empty()) continue;
    for (size_t i = uses.front(); i <= uses.back(); ++i) life.push_back(i);
  }
  return life;
}

bool lives_overlap(const Plan& plan, const Span& a, const Span& b) {
  const std::vector<size_t> one = life_of(plan, *a.tensor), other = life_of(plan, *b.tensor);
  return std::ranges::find_first_of(one, other) != one.end();
}

// The most bytes that live at a time: no placement takes fewer.
int64_t most_live_bytes(const Plan& plan) {
  std::vector<int64_t> live(plan.kernels.size(), 0);
  for (const Span& span : workspace_spans(plan))
    for (const size_t kernel : life_of(plan, *span.tensor))
      live[kernel] += (span.tensor->bytes + 255) / 256 * 256;
  return live.empty() ? 0 : std::ranges::max(live);
}

// Forward alone and training, with every choice that moves memory.
std::vector<Layer> layers() {
  std::vector<Layer> all;
  for (const bool trains : {false, true})
    for (const int32_t intermediate : {2048, 2880})
      for (const Recipe& recipe : {Recipe::kFp8Flow, Recipe::kBf16})
        for (const Recompute recompute : {Recompute::kNone, Recompute::kMoeExpert})
          for (const bool fuses : {true, false}) {
            Layer layer = dsv3_like_layer();
            layer.experts = layer.local_experts = 8;
            layer.max_permuted_rows = worst_case_permuted_rows(layer);
            if (trains) layer.passes = {Pass::kForward, Pass::kBackward};
            layer.intermediate = intermediate;
            layer.recipe = recipe;
            layer.recompute = recompute;
            layer.fuse_activation = layer.fuse_transpose = layer.fuse_activation_transpose = fuses;
            all.push_back(layer);
            layer.backward_halves = layer.biases = trains;
            if (trains) all.push_back(layer);
          }
  return all;
}

TEST(PlanWorkspace, NeverOverlapsTensorsThatLiveTogether) {
  for (const Layer& layer : layers()) {
    SCOPED_TRACE(to_json(layer));
    const Result<Plan> plan = plan_layer(layer, Target{});
    ASSERT_TRUE(plan);
    const std::vector<Span> spans = workspace_spans(*plan);
    for (const Span& a : spans) {
      EXPECT_EQ(a.begin % 256, 0) << a.tensor->name;
      EXPECT_LE(a.end, plan->workspace_bytes) << a.tensor->name;
      for (const Span& b : spans) {
        if (a.tensor == b.tensor || !memory_overlaps(a, b)) continue;
        EXPECT_FALSE(lives_overlap(*plan, a, b)) << a.tensor->name << " and " << b.tensor->name;
      }
    }
  }
}

// Or little more: where blocks of several sizes follow each other, gaps may have to stay.
TEST(PlanWorkspace, TakesHardlyMoreThanIsInUseAtATime) {
  for (const Layer& layer : layers()) {
    SCOPED_TRACE(to_json(layer));
    const Result<Plan> plan = plan_layer(layer, Target{});
    ASSERT_TRUE(plan);
    EXPECT_LE(plan->workspace_bytes, most_live_bytes(*plan) * 104 / 100);
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
