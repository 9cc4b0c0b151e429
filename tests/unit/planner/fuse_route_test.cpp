// SPDX-License-Identifier: Apache-2.0
// Which layers route and permute in one kernel.
#include "tests/unit/planner/training_layers.h"

namespace moejit::compiler {
namespace {

Layer serving_layer(const Recipe& recipe, int64_t max_tokens) {
  Layer layer = layer_of(recipe);
  layer.passes = {Pass::kForward};
  layer.top_k = 8;
  layer.experts = layer.local_experts = 128;
  layer.max_tokens = max_tokens;
  layer.max_permuted_rows = worst_case_permuted_rows(layer);
  return layer;
}

std::vector<std::string> first_operations(const Layer& layer) {
  std::vector<std::string> names = operations_of(plan_of(layer), "forward");
  names.resize(2);
  return names;
}

constexpr int64_t kMostTokens = kMostChoicesToRoute / 8;

TEST(FuseRoute, JoinsRouteAndThePermuteOfFewTokens) {
  for (const Recipe* recipe : {&Recipe::kFp8Flow, &Recipe::kFp8Blockwise, &Recipe::kFp8Rowwise,
                               &Recipe::kMxfp8, &Recipe::kBf16, &Recipe::kNvfp4}) {
    const bool quantizes = recipe != &Recipe::kBf16 && recipe != &Recipe::kNvfp4;
    const std::string permute = quantizes ? "quantize_permute_pad" : "permute_pad";
    for (const int64_t tokens : {int64_t{1}, kMostTokens})
      EXPECT_EQ(first_operations(serving_layer(*recipe, tokens)).front(), "route_" + permute);
    EXPECT_EQ(first_operations(serving_layer(*recipe, kMostTokens + 1)), (Names{"route", permute}));
  }
}

TEST(FuseRoute, WritesWhatBothKernelsWrite) {
  const Plan plan = plan_of(serving_layer(Recipe::kFp8Flow, 16));
  const KernelPlan& kernel = *find_kernel(plan, "route_quantize_permute_pad");
  for (const std::string_view written : {"counts", "offs", "row_map", "status", "permuted_q",
                                         "permuted_scale_inv", "permuted_probs"})
    EXPECT_TRUE(touches(kernel, written)) << written;
  const std::string text = print_plan(plan, true);
  EXPECT_NE(text.find("route and quantize_permute_pad are one kernel: with 128 choices"),
            std::string::npos)
      << text;
}

TEST(FuseRoute, LeavesOtherLayersAsTheyWere) {
  Layer trained = serving_layer(Recipe::kFp8Flow, 16);
  trained.passes = {Pass::kForward, Pass::kBackward};
  EXPECT_EQ(first_operations(trained).front(), "route");
  for (const Recipe* recipe : {&Recipe::kFp8Current, &Recipe::kFp8Delayed})
    EXPECT_EQ(first_operations(serving_layer(*recipe, 16)).front(), "route");
  // Their histograms would leave room for few CTAs.
  Layer many = serving_layer(Recipe::kBf16, 16);
  many.experts = many.local_experts = 1024;
  many.max_permuted_rows = worst_case_permuted_rows(many);
  EXPECT_EQ(first_operations(many).front(), "route");
}

TEST(FuseRoute, KeepsACtaForNoTokens) {
  const Plan plan = plan_of(serving_layer(Recipe::kBf16, 16));
  const KernelPlan& kernel = *find_kernel(plan, "route_permute_pad");
  EXPECT_EQ(busy_ctas(kernel.spec, {.top_k = 8, .max_permuted_rows = 0}, 0), 1);
}

}  // namespace
}  // namespace moejit::compiler
