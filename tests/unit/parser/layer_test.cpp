// SPDX-License-Identifier: Apache-2.0
#include "compiler/layer.h"

#include "compiler/compiler.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {
namespace {

Layer layer_of(int32_t local_experts, int32_t top_k, int32_t alignment, int64_t tokens) {
  return {.experts = local_experts,
          .local_experts = local_experts,
          .top_k = top_k,
          .splits_alignment = alignment,
          .max_tokens = tokens};
}

// The largest offs[E] of any way to hand `rows` rows to `experts` groups.
int64_t most_rows(int64_t experts, int64_t rows, int64_t alignment) {
  if (experts == 0) return rows == 0 ? 0 : -1;
  int64_t most = -1;
  for (int64_t count = 0; count <= rows; ++count) {
    const int64_t rest = most_rows(experts - 1, rows - count, alignment);
    if (rest < 0) continue;
    most = std::max(most, rest + (count + alignment - 1) / alignment * alignment);
  }
  return most;
}

TEST(WorstCasePermutedRows, IsExactlyTheLargestOfAllRoutings) {
  for (const int32_t experts : {1, 2, 4})
    for (const int32_t alignment : {1, 2, 4, 8})
      for (int64_t rows = 0; rows <= 12; ++rows)
        EXPECT_EQ(worst_case_permuted_rows(layer_of(experts, 1, alignment, rows)),
                  most_rows(experts, rows, alignment))
            << experts << " experts, " << rows << " rows, alignment " << alignment;
}

TEST(WorstCasePermutedRows, PadsNoGroupThatCannotHaveRows) {
  EXPECT_EQ(worst_case_permuted_rows(layer_of(256, 8, 128, 1)), 8 * 128);
}

TEST(WorstCasePermutedRows, DoesNotOverflow) {
  EXPECT_EQ(worst_case_permuted_rows(layer_of(4096, 4096, 1, 1 << 20)), int64_t{1} << 32);
}

TEST(LayerJson, ReadsBackToAnEqualRecord) {
  const Layer layer{.name = "odd \"name\" \\ \xC3\xA9",
                    .experts = 160,
                    .local_experts = 20,
                    .top_k = 6,
                    .hidden = 2880,
                    .intermediate = 1408,
                    .topk_ids_dtype = IndexDtype::kI64,
                    .topk_probs_dtype = TopkProbsDtype::kBf16,
                    .foreign_experts = ForeignExperts::kIgnore,
                    .recipe = Recipe::kNvfp4,
                    .splits_alignment = 48,
                    .max_tokens = 1000,
                    .max_permuted_rows = 480,
                    .dispatch = Dispatch::kNone,
                    .passes = {Pass::kForward, Pass::kBackward},
                    .gradients = {Gradient::kDx, Gradient::kDw2},
                    .backward_halves = true,
                    .weight_checks = true,
                    .recompute = Recompute::kMoeExpert,
                    .wgrad_dtype = WgradDtype::kBf16,
                    .fuse_activation = false,
                    .fuse_transpose = false,
                    .fuse_activation_transpose = false};
  const Result<Layer> read = parse_layer(to_json(layer), "layer.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, layer);
}

TEST(LayerJson, KeepsActivations) {
  Layer layer = layer_of(8, 2, 128, 64);
  layer.hidden = layer.intermediate = 128;
  layer.max_permuted_rows = 1024;
  const std::vector<ActivationParameter> chosen = {{"limit", 0.1}, {"alpha", 1e-20}};
  for (const Activation& activation :
       {make_activation("geglu").value(), make_activation("clamped_swiglu", chosen).value(),
        parse_activation("where(gate < -1e-05, up, gate / 3)").value()}) {
    layer.activation = activation;
    const Result<Layer> read = parse_layer(to_json(layer), "layer.json");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, layer);
  }
  layer.activation = make_activation("clamped_swiglu").value();
  EXPECT_NE(to_json(layer).find("\"activation\": {\"preset\": \"clamped_swiglu\", \"limit\": 7, "
                                "\"alpha\": 1.702, \"offset\": 1},"),
            std::string::npos)
      << to_json(layer);
}

TEST(LayerJson, WritesAllFieldsInAStableOrder) {
  const Layer layer{.name = "n",
                    .experts = 8,
                    .local_experts = 4,
                    .top_k = 2,
                    .hidden = 256,
                    .intermediate = 128,
                    .max_tokens = 64,
                    .max_permuted_rows = 1024,
                    .dispatch = Dispatch::kFp8};
  EXPECT_EQ(to_json(layer), R"({
  "name": "n",
  "experts": 8,
  "local_experts": 4,
  "top_k": 2,
  "hidden": 256,
  "intermediate": 128,
  "activation": "swiglu",
  "gate_up_layout": "concat",
  "biases": false,
  "dtype": "bf16",
  "topk_ids_dtype": "i32",
  "topk_probs_dtype": "f32",
  "foreign_experts": "report",
  "recipe": "fp8_flow",
  "block_size": 128,
  "scale_sharing_k": 1,
  "splits_alignment": 128,
  "max_tokens": 64,
  "max_permuted_rows": 1024,
  "dispatch": "fp8",
  "dispatch_calls": false,
  "passes": ["forward"],
  "backward_halves": false,
  "recompute": "none",
  "wgrad_dtype": "f32",
  "fuse_activation": true,
  "fuse_transpose": true,
  "fuse_activation_transpose": true
}
)");
}

TEST(LayerJson, WritesTheGradientsOfABackwardPass) {
  Layer layer = layer_of(8, 2, 128, 64);
  EXPECT_EQ(to_json(layer).find("\"gradients\""), std::string::npos);
  layer.passes.push_back(Pass::kBackward);
  EXPECT_NE(to_json(layer).find("\n  \"gradients\": [\"dx\", \"dprobs\", \"dw1\", \"dw2\"],\n"),
            std::string::npos);
  layer.biases = true;
  EXPECT_NE(to_json(layer).find("\"dw2\", \"db1\", \"db2\"]"), std::string::npos);
  layer.gradients = {Gradient::kDx};
  EXPECT_NE(to_json(layer).find("\"gradients\": [\"dx\"]"), std::string::npos);
}

TEST(LayerJson, WithoutPaddingLetsTheParserChooseItForOtherPasses) {
  const Layer layer{.experts = 8,
                    .local_experts = 8,
                    .top_k = 2,
                    .hidden = 256,
                    .intermediate = 128,
                    .recipe = Recipe::kMxfp8,
                    .splits_alignment = 1,
                    .max_tokens = 64,
                    .max_permuted_rows = 128};
  std::string text = to_json_without_padding(layer);
  EXPECT_EQ(parse_layer(text, "layer.json").value(), layer);
  const std::string_view passes = R"(["forward"])";
  text.replace(text.find(passes), passes.size(), R"(["forward", "backward"])");
  const Layer training = parse_layer(text, "layer.json").value();
  EXPECT_EQ(training.splits_alignment, 32);
  EXPECT_EQ(training.max_permuted_rows, 352);  // 64 * 2 + 8 * 31, whole groups of 32
}

// 8 experts, 64 tokens of 2 choices, in mxfp8.
Layer mxfp8_layer(int32_t alignment, int64_t rows) {
  Layer layer = layer_of(8, 2, alignment, 64);
  layer.recipe = Recipe::kMxfp8;
  layer.max_permuted_rows = rows;
  return layer;
}

TEST(SetPasses, ChoosesTheLeastAlignmentForOtherPasses) {
  const std::vector<Pass> training = {Pass::kForward, Pass::kBackward};
  Layer layer = mxfp8_layer(1, 128);
  set_passes(layer, training);
  EXPECT_EQ(layer.passes, training);
  EXPECT_EQ(layer.splits_alignment, 32);
  EXPECT_EQ(layer.max_permuted_rows, 352);
  set_passes(layer, {Pass::kForward});
  EXPECT_EQ(layer, mxfp8_layer(1, 128));
}

TEST(SetPasses, KeepsOtherAlignmentsAndFewerOrMoreRows) {
  const std::vector<Pass> training = {Pass::kForward, Pass::kBackward};
  Layer larger = mxfp8_layer(128, 1024);
  set_passes(larger, training);
  EXPECT_EQ(larger.splits_alignment, 128);
  EXPECT_EQ(larger.max_permuted_rows, 1024);
  Layer fewer = mxfp8_layer(1, 100);
  set_passes(fewer, training);
  EXPECT_EQ(fewer.max_permuted_rows, 128);  // whole groups of 32
  Layer more = mxfp8_layer(1, 130);
  set_passes(more, training);
  EXPECT_EQ(more.max_permuted_rows, 384);  // 352 and 2
}

TEST(LayerJson, IsValidTextEvenForANameThatIsNot) {
  EXPECT_NE(to_json(Layer{.name = "\xff"}).find("\xEF\xBF\xBD"), std::string::npos);
}

}  // namespace
}  // namespace moejit::compiler
