// SPDX-License-Identifier: Apache-2.0
#include "compiler/memory_layout.h"

#include "tests/support/random_layer.h"
#include "tests/unit/planner/planner_layers.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

namespace moejit::compiler {
namespace {

struct Planned {
  Plan plan;
  MemoryLayout layout;
};

std::vector<Planned> random_plans(bool keeps_intermediates) {
  std::vector<Planned> all;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Result<Layer> layer =
        parse_layer(testing::random_layer(seed, testing::LayerSize::kMedium), "layer");
    if (!layer) continue;
    const Result<Plan> plan =
        plan_layer(*layer, Target{}, {.keep_intermediates = keeps_intermediates});
    if (plan) all.push_back({*plan, MemoryLayout::make(*plan).value()});
  }
  EXPECT_GT(all.size(), 40U);
  return all;
}

// 0 and max_tokens among them, and all where there are few.
std::vector<int64_t> some_tokens(const Layer& layer) {
  std::vector<int64_t> all;
  const int64_t step = std::max<int64_t>(1, layer.max_tokens / 97);
  for (int64_t tokens = 0; tokens < layer.max_tokens; tokens += step) all.push_back(tokens);
  all.push_back(layer.max_tokens);
  return all;
}

bool is_in_block(const TensorPlan& tensor) { return block_offset(tensor) >= 0; }

// The rows of the worst routing: `choices` of tokens among `experts`, groups rounded up.
int64_t worst_rows(int64_t choices, int64_t experts, int64_t alignment) {
  std::vector<int64_t> most(static_cast<size_t>(choices + 1), 0);  // of so many choices
  for (int64_t expert = 0; expert < experts; ++expert) {
    std::vector<int64_t> next = most;
    for (int64_t all = 1; all <= choices; ++all)
      for (int64_t own = 1; own <= all; ++own) {
        const int64_t rows = (own + alignment - 1) / alignment * alignment;
        int64_t& best = next[static_cast<size_t>(all)];
        best = std::max(best, rows + most[static_cast<size_t>(all - own)]);
      }
    most = next;
  }
  return most.back();
}

void expect_in_order(const Plan& plan, const CallLayout& call) {
  const auto end = [&](size_t slot) { return call.offset[slot] + call.bytes[slot]; };
  for (size_t a = 0; a < plan.tensors.size(); ++a) {
    const TensorPlan& tensor = plan.tensors[a];
    if (!is_in_block(tensor)) continue;
    const auto block = std::ranges::find(kMemoryBlocks, tensor.role, &MemoryBlock::role);
    ASSERT_EQ(call.offset[a] % 256, 0) << tensor.name;
    ASSERT_LE(end(a), call.sizes.*block->bytes) << tensor.name;
    for (size_t b = 0; b < plan.tensors.size(); ++b) {
      const TensorPlan& other = plan.tensors[b];
      const bool is_before = block_offset(tensor) + tensor.bytes <= block_offset(other);
      if (other.role != tensor.role || !is_before) continue;
      ASSERT_LE(end(a), call.offset[b]) << tensor.name << " and " << other.name;
    }
  }
}

TEST(CallDims, AreThoseOfTheWorstRouting) {
  for (const int32_t experts : {1, 3, 4})
    for (const int32_t alignment : {1, 4, 16})
      for (int64_t tokens = 1; tokens <= 12; ++tokens) {
        Layer layer{.local_experts = experts,
                    .top_k = 2,
                    .splits_alignment = alignment,
                    .max_tokens = 13,
                    .max_permuted_rows = 1 << 20};
        const int64_t rows = worst_rows(2 * tokens, experts, alignment);
        EXPECT_EQ(call_dims(call_bounds(layer), tokens).rows, rows);
        const int64_t columns = call_dims(call_bounds(layer), tokens).columns;
        EXPECT_GE(columns, worst_rows(2 * tokens, experts, 128));
        EXPECT_LE(columns, worst_rows(2 * tokens, experts, 128) + 128);
        layer.max_permuted_rows = 16;
        EXPECT_EQ(call_dims(call_bounds(layer), tokens).rows, std::min<int64_t>(rows, 16));
      }
}

// Saved memory is promised as a line: a call may not need more.
TEST(CallDims, AreBelowTheirLine) {
  constexpr int64_t kUnit = 3;
  for (const int32_t experts : {1, 3, 4})
    for (const int32_t alignment : {1, 4, 16, 128})
      for (const int32_t top_k : {1, 2})
        for (const int64_t max_tokens : {1, 13, 66, 132}) {
          Layer layer{.local_experts = experts,
                      .top_k = top_k,
                      .splits_alignment = alignment,
                      .max_tokens = max_tokens};
          layer.max_permuted_rows = worst_case_permuted_rows(layer);
          const CallBounds bounds = call_bounds(layer);
          for (const CallDim dim :
               {CallDim::kTokens, CallDim::kRows, CallDim::kColumns, CallDim::kColumnBlocks}) {
            const LinearBound line = bound_bytes(bounds, dim, kUnit);
            for (int64_t tokens = 0; tokens <= max_tokens; ++tokens)
              EXPECT_LE(kUnit * call_dims(bounds, tokens).size(dim),
                        line.fixed + tokens * line.per_token)
                  << experts << " experts, alignment " << alignment << ", T " << tokens << " of "
                  << max_tokens;
          }
        }
}

TEST(MemoryLayout, HasThePlansOffsetsAndSizesAtMaxTokens) {
  for (const bool keeps_intermediates : {false, true})
    for (const auto& [plan, layout] : random_plans(keeps_intermediates)) {
      SCOPED_TRACE(to_json(*plan.layer));
      const CallLayout call = layout.at(plan.layer->max_tokens);
      EXPECT_EQ(call.sizes,
                (MemorySizes{plan.workspace_bytes, plan.saved_bytes, plan.deferred_bytes}));
      for (size_t slot = 0; slot < plan.tensors.size(); ++slot) {
        const TensorPlan& tensor = plan.tensors[slot];
        EXPECT_EQ(call.offset[slot], is_in_block(tensor) ? block_offset(tensor) : 0);
        EXPECT_EQ(call.bytes[slot], is_in_block(tensor) ? tensor.bytes : 0);
      }
    }
}

TEST(MemoryLayout, NeverNeedsLessForMoreTokens) {
  for (const auto& [plan, layout] : random_plans(false)) {
    SCOPED_TRACE(to_json(*plan.layer));
    MemorySizes before;
    const int64_t last = std::min<int64_t>(plan.layer->max_tokens, 5000);
    for (int64_t tokens = 0; tokens <= last; ++tokens) {
      const MemorySizes now = layout.sizes(tokens).value();
      ASSERT_GE(now.workspace_bytes, before.workspace_bytes) << tokens;
      ASSERT_GE(now.saved_bytes, before.saved_bytes) << tokens;
      ASSERT_GE(now.deferred_bytes, before.deferred_bytes) << tokens;
      before = now;
    }
    EXPECT_LE(before.workspace_bytes, plan.workspace_bytes);
    EXPECT_LE(before.saved_bytes, plan.saved_bytes);
    EXPECT_LE(before.deferred_bytes, plan.deferred_bytes);
  }
}

TEST(MemoryLayout, KeepsTensorsInTheirBlockAndApartWhereThePlanDoes) {
  for (const bool keeps_intermediates : {false, true})
    for (const auto& [plan, layout] : random_plans(keeps_intermediates)) {
      SCOPED_TRACE(to_json(*plan.layer));
      for (const int64_t tokens : some_tokens(*plan.layer))
        ASSERT_NO_FATAL_FAILURE(expect_in_order(plan, layout.at(tokens))) << "T " << tokens;
    }
}

TEST(MemoryLayout, TakesLittleMoreThanItsShareForFewTokens) {
  for (const Recipe& recipe : {Recipe::kFp8Flow, Recipe::kBf16}) {
    Layer layer = dsv3_like_layer();
    layer.recipe = recipe;
    layer.passes = {Pass::kForward, Pass::kBackward};
    const Plan plan = plan_of(layer);
    const MemoryLayout layout = MemoryLayout::make(plan).value();
    for (const int64_t tokens : {1, 16, 512, 4000}) {
      const int64_t rows = call_dims(call_bounds(layer), tokens).rows;
      EXPECT_LE(
          layout.sizes(tokens)->workspace_bytes,
          (plan.workspace_bytes + layer.max_permuted_rows - 1) / layer.max_permuted_rows * rows +
              256 * static_cast<int64_t>(plan.tensors.size()))
          << tokens;
    }
  }
}

TEST(MemoryLayout, RefusesTokensThatNoCallHas) {
  const MemoryLayout layout = MemoryLayout::make(plan_of(dsv3_like_layer())).value();
  EXPECT_TRUE(layout.sizes(0));
  EXPECT_TRUE(layout.sizes(4096));
  for (const int64_t tokens : {-1, 4097}) {
    const auto sizes = layout.sizes(tokens);
    ASSERT_FALSE(sizes);
    EXPECT_EQ(sizes.error().code, ErrorCode::kInvalidValue);
    EXPECT_NE(sizes.error().message.find("wanted 0 to 4096"), std::string::npos);
  }
}

}  // namespace
}  // namespace moejit::compiler
