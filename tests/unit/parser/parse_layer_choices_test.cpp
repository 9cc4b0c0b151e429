// SPDX-License-Identifier: Apache-2.0
// The experts that a layer chooses itself: by its router, and the shared ones.
#include "compiler/compiler.h"

#include <gtest/gtest.h>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::compiler {
namespace {

// A description of the required keys and `more`.
std::string layer_with(std::string_view more) {
  return R"({"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128, "max_tokens": 64)" +
         (more.empty() ? std::string() : ", " + std::string(more)) + "}";
}

Layer parsed_layer(const std::string& text) {
  const Result<Layer> layer = parse_layer(text, "layer.json");
  EXPECT_TRUE(layer) << layer.error().message;
  return layer.value_or(Layer{});
}

TEST(Parser, TakesTheRouterOfTheOperationForTheLayersExperts) {
  const Layer layer = parsed_layer(layer_with(
      R"("router": {"score": "sigmoid", "bias": true, "groups": 2}, "passes": ["forward", "backward"])"));
  ASSERT_TRUE(layer.router);
  EXPECT_EQ(layer.router->score, RouterScore::kSigmoid);
  EXPECT_EQ(layer.router->groups, 2);
  EXPECT_EQ(parsed_layer(to_json(layer)), layer);
  EXPECT_EQ(gradients_of(layer),
            (std::vector{Gradient::kDx, Gradient::kDlogits, Gradient::kDw1, Gradient::kDw2}));
  EXPECT_EQ(parsed_layer(layer_with(R"("router": {})")).router, RouterFormula{});
  EXPECT_FALSE(parsed_layer(layer_with("")).router);
  for (const std::string_view more :
       {R"("local_experts": 4, "foreign_experts": "ignore")",
        R"("local_experts": 4, "dispatch": "fp8", "dispatch_calls": true)",
        R"("expert_parallel": {"ranks": 2})", R"("topk_ids_dtype": "i64")"})
    EXPECT_TRUE(parsed_layer(layer_with(R"("router": {}, )" + std::string(more))).router) << more;
}

TEST(Parser, RefusesRoutersThatALayerCannotHave) {
  const auto refuse = [](const std::string& text, std::initializer_list<std::string_view> words) {
    const Result<Layer> refused = parse_layer(text, "layer.json");
    ASSERT_FALSE(refused) << text;
    const std::string error = to_string(refused.error());
    for (const std::string_view word : words)
      EXPECT_NE(error.find(word), std::string::npos) << error << ": " << word;
  };
  const auto with_router = [](std::string_view more) {
    return layer_with(R"("router": {}, )" + std::string(more));
  };
  constexpr std::string_view kTrains = R"("passes": ["forward", "backward"], )";
  refuse(layer_with(R"("router": {"groups": 3})"), {"$.router.groups: got 3 for 8 experts"});
  refuse(layer_with(R"("router": {"zero_experts": 2})"),
         {"$.router.zero_experts: got 2 in a layer, wanted 0", "operation router"});
  refuse(R"({"experts": 2048, "top_k": 2, "hidden": 256, "intermediate": 128, "max_tokens": 64,
             "router": {}})",
         {"$.experts: got 2048 with a router, wanted at most 1024"});
  refuse(R"({"experts": 64, "top_k": 33, "hidden": 256, "intermediate": 128, "max_tokens": 64,
             "router": {}})",
         {"$.top_k: got 33 with a router, wanted at most 32"});
  refuse(with_router(R"("topk_probs_dtype": "bf16")"), {"$.topk_probs_dtype: got bf16", "f32"});
  refuse(with_router(R"("local_experts": 4)"),
         {"$.local_experts: got 4 of 8 experts with a router", "\"ignore\""});
  refuse(with_router(std::string(kTrains) + R"("dispatch": "fp8", "dispatch_calls": true)"),
         {"$.dispatch_calls: got true with a router and a backward pass", "router_backward"});
  refuse(with_router(std::string(kTrains) + R"("gradients": ["dprobs"])"),
         {"got \"dprobs\" of a layer with a router", "dlogits"});
  refuse(layer_with(std::string(kTrains) + R"("gradients": ["dlogits"])"),
         {"got \"dlogits\" of a layer without a router", "dprobs"});
  refuse(
      R"({"input": "grouped", "experts": 8, "hidden": 256, "intermediate": 128, "max_tokens": 300,
             "router": {}})",
      {"$.router: got", "with the input \"grouped\", wanted it left out", "have been routed"});
}

TEST(Parser, ReadsSharedExperts) {
  const Layer layer = parsed_layer(layer_with(R"("shared": {"experts": 2, "gate": true})"));
  EXPECT_EQ(layer.shared, (SharedExperts{.experts = 2, .gate = true}));
  EXPECT_EQ(layer.max_permuted_rows, 64 * (2 + 2));
  EXPECT_EQ(parsed_layer(to_json(layer)), layer);
  EXPECT_FALSE(parsed_layer(layer_with(R"("shared": {"experts": 1})")).shared.gate);
  EXPECT_EQ(to_json(parsed_layer(layer_with(""))).find("shared"), std::string::npos);
}

// Shared experts have rows of the rank's own tokens, the others of all ranks' tokens.
TEST(Parser, PlansRowsOfSharedExpertsForARanksTokens) {
  const Layer layer =
      parsed_layer(layer_with(R"("shared": {"experts": 2}, "splits_alignment": 16, )"
                              R"("expert_parallel": {"ranks": 2})"));
  // 2 * 64 * 2 choices of 4 experts, 64 rows of each shared one, and 15 pad rows of each of 6.
  EXPECT_EQ(layer.max_permuted_rows, (2 * 64 * 2 + 2 * 64 + 6 * 15) / 16 * 16);
}

}  // namespace
}  // namespace moejit::compiler
