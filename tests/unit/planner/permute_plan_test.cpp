// SPDX-License-Identifier: Apache-2.0
// How many rows the permuting kernels ask L2 for at once.
#include "tests/unit/planner/planner_layers.h"

namespace moejit::compiler {
namespace {

int32_t rows_per_burst(const Layer& layer, std::string_view operation) {
  const Plan plan = plan_of(layer);
  const KernelPlan* kernel = find_kernel(plan, operation);
  if (kernel == nullptr) return -1;
  const int32_t rows = std::get<RowChainSpec>(kernel->spec).rows_per_burst;
  EXPECT_EQ(print_plan(plan, true).find("L2 is asked for ") != std::string::npos, rows > 0);
  return rows;
}

// The first of 256 experts, on one rank of several.
Layer dispatched_layer(int32_t local_experts) {
  Layer layer = dsv3_like_layer();
  layer.dispatch = Dispatch::kFp8;
  layer.local_experts = local_experts;
  return layer;
}

TEST(PermutePlan, AsksL2ForThreeMebibytesOfRowsAtOnce) {
  EXPECT_EQ(rows_per_burst(dispatched_layer(256), "permute_pad"), 432);  // of 7168 bytes
  Layer bf16 = dsv3_like_layer();
  bf16.recipe = Recipe::kBf16;
  EXPECT_EQ(rows_per_burst(bf16, "permute_pad"), 208);  // of twice as many
}

TEST(PermutePlan, AsksForNoneWhereTokensHaveFewRows) {
  EXPECT_EQ(rows_per_burst(dispatched_layer(192), "permute_pad"), 432);  // 6 rows in the mean
  EXPECT_EQ(rows_per_burst(dispatched_layer(191), "permute_pad"), 0);
}

TEST(PermutePlan, AsksForNoneWhereRowsAreQuantizedOnTheWay) {
  EXPECT_EQ(rows_per_burst(dsv3_like_layer(), "quantize_permute_pad"), 0);
}

TEST(PermutePlan, AsksForNoneWhereTheyAreAllUsedAtOnce) {
  Layer layer = dispatched_layer(256);
  layer.max_tokens = 2 * 432;
  EXPECT_EQ(rows_per_burst(layer, "permute_pad"), 0);
  layer.max_tokens += 1;
  EXPECT_EQ(rows_per_burst(layer, "permute_pad"), 432);
}

}  // namespace
}  // namespace moejit::compiler
