// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"
#include "compiler/parser/layer_schema.h"
#include "compiler/recipe.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace moejit::compiler {
namespace {

// A description of the required keys and `more`.
std::string with(std::string_view more) {
  return R"({"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 128, "max_tokens": 64)" +
         (more.empty() ? std::string() : ", " + std::string(more)) + "}";
}

Layer parsed(const std::string& text) {
  const Result<Layer> layer = parse_layer(text, "layer.json");
  EXPECT_TRUE(layer) << layer.error().message;
  return layer.value_or(Layer{});
}

TEST(Parser, FillsInDefaults) {
  const Layer expected{.name = "",
                       .experts = 8,
                       .local_experts = 8,
                       .top_k = 2,
                       .hidden = 256,
                       .intermediate = 128,
                       .activation = Activation{},
                       .gate_up_layout = GateUpLayout::kConcat,
                       .biases = false,
                       .dtype = "bf16",
                       .topk_ids_dtype = IndexDtype::kI32,
                       .topk_probs_dtype = TopkProbsDtype::kF32,
                       .foreign_experts = ForeignExperts::kReport,
                       .recipe = Recipe::kFp8Flow,
                       .block_size = 128,
                       .scale_sharing_k = 1,
                       .splits_alignment = 1,
                       .max_tokens = 64,
                       .max_permuted_rows = 128,  // 64 * 2: no pad rows
                       .dispatch = Dispatch::kNone,
                       .passes = {Pass::kForward},
                       .gradients = {},
                       .backward_halves = false,
                       .recompute = Recompute::kNone,
                       .wgrad_dtype = WgradDtype::kF32,
                       .fuse_activation = true,
                       .fuse_transpose = true,
                       .fuse_activation_transpose = true};
  EXPECT_EQ(parsed(with("")), expected);
}

TEST(Parser, ReadsEveryField) {
  const Layer layer = parsed(R"({
    "name": "all", "experts": 16, "local_experts": 4, "top_k": 3, "hidden": 2880,
    "intermediate": 1408, "activation": "swiglu", "gate_up_layout": "interleaved", "biases": true, "dtype": "bf16", "recipe": "fp8_flow",
    "topk_ids_dtype": "i64", "topk_probs_dtype": "bf16", "foreign_experts": "ignore",
    "block_size": 128, "scale_sharing_k": 2, "splits_alignment": 16, "max_tokens": 100,
    "max_permuted_rows": 320, "dispatch": "fp8", "dispatch_calls": true, "passes": ["backward", "forward"],
    "gradients": ["db1", "dx"], "backward_halves": true, "weight_checks": true, "recompute": "moe_expert",
    "wgrad_dtype": "bf16", "fuse_wgrad_accumulation": true,
    "fuse_activation": false, "fuse_transpose": false, "fuse_activation_transpose": false})");
  const Layer expected{.name = "all",
                       .experts = 16,
                       .local_experts = 4,
                       .top_k = 3,
                       .hidden = 2880,
                       .intermediate = 1408,
                       .gate_up_layout = GateUpLayout::kInterleaved,
                       .biases = true,
                       .topk_ids_dtype = IndexDtype::kI64,
                       .topk_probs_dtype = TopkProbsDtype::kBf16,
                       .foreign_experts = ForeignExperts::kIgnore,
                       .scale_sharing_k = 2,
                       .splits_alignment = 16,
                       .max_tokens = 100,
                       .max_permuted_rows = 320,
                       .dispatch = Dispatch::kFp8,
                       .dispatch_calls = true,
                       .passes = {Pass::kForward, Pass::kBackward},
                       .gradients = {Gradient::kDx, Gradient::kDb1},
                       .backward_halves = true,
                       .weight_checks = true,
                       .recompute = Recompute::kMoeExpert,
                       .wgrad_dtype = WgradDtype::kBf16,
                       .fuse_activation = false,
                       .fuse_transpose = false,
                       .fuse_activation_transpose = false};
  EXPECT_EQ(layer, expected);
}

TEST(Parser, TakesGateAndUpApartWhereThereIsAGate) {
  const std::string_view start = R"({"experts": 8, "top_k": 2, "hidden": 64, "intermediate": 64,
    "max_tokens": 64, "gate_up_layout": "separate")";
  const auto layer = parse_layer(fmt::format("{}}}", start), "layer.json");
  ASSERT_TRUE(layer);
  EXPECT_EQ(layer->gate_up_layout, GateUpLayout::kSeparate);
  EXPECT_EQ(parse_layer(to_json(*layer), "again").value(), *layer);
  const auto refused =
      parse_layer(fmt::format(R"({}, "activation": "relu_squared"}})", start), "layer.json");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "layer.json:2: $.gate_up_layout: got separate with the activation relu_squared, wanted "
            "concat");
  EXPECT_EQ(refused.error().hint, "the activation has no gate: there is only up");
}

TEST(Parser, PadsAsLittleAsRecipeAndPassesTake) {
  struct Case {
    std::string_view recipe;
    int32_t forward;
    int32_t training;
  };
  constexpr Case kCases[] = {{"bf16", 1, 1},        {"fp8_flow", 1, 1},    {"fp8_blockwise", 1, 1},
                             {"fp8_delayed", 1, 1}, {"fp8_current", 1, 1}, {"fp8_rowwise", 1, 1},
                             {"mxfp8", 1, 32},      {"nvfp4", 16, 16}};
  // 64 * 2 choices on 8 experts: 128 + 8 * 15 = 248, and 128 + 8 * 31 = 376.
  const auto rows_of = [](int32_t alignment) {
    return alignment == 1 ? 128 : alignment == 16 ? 240 : 352;
  };
  EXPECT_EQ(std::size(kCases), std::size(kRecipes));
  for (const auto& [recipe, forward, training] : kCases) {
    const std::string named = fmt::format(R"("recipe": "{}")", recipe);
    const Layer layer = parsed(with(named));
    EXPECT_EQ(layer.splits_alignment, forward) << recipe;
    EXPECT_EQ(layer.max_permuted_rows, rows_of(forward)) << recipe;
    EXPECT_TRUE(plan_layer(layer, {})) << recipe;
    const Layer trained = parsed(with(named + R"(, "passes": ["forward", "backward"])"));
    EXPECT_EQ(trained.splits_alignment, training) << recipe;
    EXPECT_EQ(trained.max_permuted_rows, rows_of(training)) << recipe;
    EXPECT_TRUE(plan_layer(trained, {})) << recipe;
    EXPECT_EQ(parsed(with(named + R"(, "splits_alignment": 256)")).splits_alignment, 256) << recipe;
  }
}

TEST(Parser, DispatchesFp8WhereExpertsAreElsewhereUnlessToldOtherwise) {
  EXPECT_EQ(parsed(with(R"("local_experts": 4)")).dispatch, Dispatch::kFp8);
  EXPECT_EQ(parsed(with(R"("local_experts": 4, "dispatch": "none")")).dispatch, Dispatch::kNone);
  // A default that the planner refuses would be no default.
  EXPECT_EQ(parsed(with(R"("local_experts": 4, "recipe": "bf16")")).dispatch, Dispatch::kNone);
  EXPECT_EQ(parsed(with(R"("local_experts": 4, "recipe": "fp8_current")")).dispatch,
            Dispatch::kNone);
  EXPECT_EQ(parsed(with(R"("dispatch": "fp8")")).dispatch, Dispatch::kFp8);
}

TEST(Parser, TakesPowersOfTwoForScalesThatAreQuotients) {
  const std::string of_current = R"("recipe": "fp8_current", "power_of_2_scales": true)";
  EXPECT_TRUE(parsed(with(of_current)).power_of_2_scales);
  EXPECT_FALSE(parsed(with(R"("recipe": "fp8_current")")).power_of_2_scales);
  EXPECT_TRUE(parsed(to_json(parsed(with(of_current)))).power_of_2_scales);
  const Result<Layer> refused =
      parse_layer(with(R"("recipe": "fp8_flow", "power_of_2_scales": true)"), "layer.json");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidValue);
  EXPECT_NE(refused.error().message.find("got true with the recipe fp8_flow, wanted false"),
            std::string::npos);
  EXPECT_NE(refused.error().hint.find("fp8_current"), std::string::npos);
}

TEST(Parser, TakesTheChoicesOfDelayedScaling) {
  const Layer usual = parsed(with(R"("recipe": "fp8_delayed")"));
  EXPECT_EQ(usual.margin, 0);
  EXPECT_EQ(usual.amax_history_len, 1024);
  EXPECT_EQ(usual.amax_compute_algo, AmaxComputeAlgo::kMax);
  EXPECT_EQ(usual.recipe, Recipe::kFp8Delayed);
  const Layer layer = parsed(with(
      R"("recipe": "fp8_delayed", "margin": 64, "amax_history_len": 1, "amax_compute_algo": "most_recent", "gradient_format": "e4m3")"));
  EXPECT_EQ(layer.margin, 64);
  EXPECT_EQ(layer.amax_history_len, 1);
  EXPECT_EQ(layer.amax_compute_algo, AmaxComputeAlgo::kMostRecent);
  EXPECT_EQ(layer.recipe.gradients, kExpertE4m3);
  EXPECT_EQ(parsed(to_json(layer)), layer);
  EXPECT_EQ(parsed(with(R"("recipe": "fp8_current", "gradient_format": "e4m3")")).recipe.gradients,
            kExpertE4m3);
}

TEST(Parser, RefusesWrongChoicesOfRecipesByPlaceAndPossibleValues) {
  const auto refuse = [](std::string_view fields, std::initializer_list<std::string_view> words) {
    const Result<Layer> refused = parse_layer(with(fields), "layer.json");
    ASSERT_FALSE(refused) << fields;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidValue) << fields;
    const std::string text = to_string(refused.error());
    for (const std::string_view word : words)
      EXPECT_NE(text.find(word), std::string::npos) << text << ": " << word;
  };
  refuse(R"("recipe": "fp8_delayed", "gradient_format": "e3m4")",
         {"layer.json:1: $.gradient_format: got", "e3m4", "e5m2", "e4m3"});
  refuse(R"("recipe": "fp8_delayed", "amax_compute_algo": "mean")",
         {"layer.json:1: $.amax_compute_algo: got", "mean", "max", "most_recent"});
  refuse(R"("recipe": "fp8_delayed", "amax_history_len": 0)",
         {"layer.json:1: $.amax_history_len: got", "0", "65536"});
  refuse(R"("recipe": "fp8_delayed", "margin": 65)", {"layer.json:1: $.margin: got", "65", "64"});
  refuse(R"("recipe": "fp8_delayed", "power_of_2_scales": true)",
         {"layer.json:1: $.power_of_2_scales: got", "fp8_delayed", "wanted false", "fp8_current"});
  refuse(R"("recipe": "fp8_current", "margin": 1)",
         {"layer.json:1: $.margin: got", "got 1 with the recipe fp8_current", "fp8_delayed"});
  refuse(R"("recipe": "fp8_flow", "amax_compute_algo": "max")",
         {"layer.json:1: $.amax_compute_algo: got", "fp8_delayed"});
  refuse(R"("recipe": "bf16", "gradient_format": "e5m2")",
         {"layer.json:1: $.gradient_format: got", "bf16", "fp8_delayed, fp8_current"});
}

constexpr std::string_view kGrouped =
    R"({"input": "grouped", "experts": 8, "hidden": 256, "intermediate": 128, "max_tokens": 300)";

std::string grouped_with(std::string_view fields) {
  return std::string(kGrouped) + std::string(fields) + "}";
}

TEST(Parser, TakesGroupedRowsAlignedNoMoreThanTheRecipeNeeds) {
  const Layer layer = parsed(grouped_with(R"(, "tokens_per_expert_dtype": "i64")"));
  EXPECT_EQ(layer.input, LayerInput::kGrouped);
  EXPECT_EQ(layer.tokens_per_expert_dtype, IndexDtype::kI64);
  EXPECT_EQ(layer.top_k, 1);
  EXPECT_EQ(layer.local_experts, 8);
  EXPECT_EQ(layer.max_permuted_rows, 300);
  EXPECT_EQ(parsed(to_json(layer)), layer);
  EXPECT_EQ(parsed(grouped_with(R"(, "top_k": 1, "local_experts": 8, "dispatch": "none")")),
            parsed(grouped_with("")));
  const auto alignment = [](std::string_view fields) {
    return parsed(grouped_with(fields)).splits_alignment;
  };
  constexpr std::string_view kBackward = R"(, "passes": ["forward", "backward"], "recipe": )";
  for (const std::string_view recipe : {"bf16", "fp8_flow", "fp8_rowwise", "mxfp8"})
    EXPECT_EQ(alignment(R"(, "recipe": ")" + std::string(recipe) + '"'), 1) << recipe;
  EXPECT_EQ(alignment(R"(, "recipe": "nvfp4")"), 16);
  EXPECT_EQ(alignment(std::string(kBackward) + R"("fp8_flow")"), 1);
  EXPECT_EQ(alignment(std::string(kBackward) + R"("mxfp8")"), 32);
  EXPECT_EQ(alignment(R"(, "splits_alignment": 128)"), 128);
}

TEST(Parser, RefusesFieldsOfTokensWhereRowsAreGrouped) {
  const auto refuse = [](std::string_view fields, std::initializer_list<std::string_view> words) {
    const Result<Layer> refused = parse_layer(grouped_with(fields), "layer.json");
    ASSERT_FALSE(refused) << fields;
    const std::string text = to_string(refused.error());
    for (const std::string_view word : words)
      EXPECT_NE(text.find(word), std::string::npos) << text << ": " << word;
  };
  refuse(R"(, "top_k": 2)", {"$.top_k: got 2 with the input \"grouped\", wanted 1", "one expert"});
  refuse(R"(, "local_experts": 4)", {"$.local_experts: got 4", "wanted 8", "of this rank"});
  refuse(R"(, "topk_ids_dtype": "i64")",
         {"$.topk_ids_dtype: got \"i64\"", "wanted it left out", "tokens_per_expert_dtype"});
  refuse(R"(, "topk_probs_dtype": "bf16")", {"wanted it left out", "probs"});
  refuse(R"(, "foreign_experts": "ignore")", {"wanted it left out", "this rank's experts"});
  refuse(R"(, "max_permuted_rows": 300)", {"wanted it left out", "max_tokens"});
  refuse(R"(, "expert_parallel": {"ranks": 2})", {"wanted it left out", "exchanged"});
  refuse(R"(, "dispatch": "fp8")",
         {"$.dispatch: got \"fp8\"", "wanted \"none\"", "dispatch_calls"});
  EXPECT_EQ(parsed(grouped_with(R"(, "dispatch": "fp8", "dispatch_calls": true)")).dispatch,
            Dispatch::kFp8);
  refuse(R"(, "input": "rows")", {"input"});
  const Result<Layer> refused =
      parse_layer(with(R"("tokens_per_expert_dtype": "i64")"), "layer.json");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("without grouped rows"), std::string::npos);
}

TEST(Parser, OrdersGradientsAndDropsAListOfAllOfThem) {
  const auto gradients = [](std::string_view more) {
    return parsed(with(R"("passes": ["forward", "backward"], )" + std::string(more))).gradients;
  };
  EXPECT_EQ(gradients(R"("gradients": ["dw2", "dprobs"])"),
            (std::vector{Gradient::kDprobs, Gradient::kDw2}));
  EXPECT_EQ(gradients(R"("gradients": ["dw2", "dw1", "dprobs", "dx"])"), std::vector<Gradient>{});
  EXPECT_EQ(gradients(R"("biases": true, "gradients": ["dw2", "dw1", "dprobs", "dx"])").size(), 4U);
}

TEST(Parser, TakesActivationsByNameWithParametersAndAsFormulas) {
  const auto activation = [](std::string_view value) {
    return parsed(with("\"activation\": " + std::string(value))).activation;
  };
  for (const std::string_view name : preset_names()) {
    const std::string quoted = "\"" + std::string(name) + "\"";
    EXPECT_EQ(activation(quoted), make_activation(name).value());
    EXPECT_EQ(activation("{\"preset\": " + quoted + "}"), make_activation(name).value());
  }
  const std::vector<ActivationParameter> chosen = {{"limit", 10.0}, {"offset", 0.0}};
  EXPECT_EQ(activation(R"({"preset": "clamped_swiglu", "offset": 0, "limit": 10.0})"),
            make_activation("clamped_swiglu", chosen).value());
  EXPECT_EQ(activation(R"({"expression": "tanh(gate) * up"})"),
            parse_activation("tanh(gate) * up").value());
}

TEST(Parser, TakesEveryRecipeName) {
  for (const std::string_view name : {"bf16", "fp8_flow", "fp8_blockwise", "fp8_delayed",
                                      "fp8_current", "fp8_rowwise", "mxfp8", "nvfp4"})
    EXPECT_EQ(to_string(parsed(with("\"recipe\": \"" + std::string(name) + "\"")).recipe), name);
}

TEST(Parser, AllowsMoreChoicesThanLocalExperts) {
  EXPECT_EQ(parsed(with(R"("local_experts": 1)")).local_experts, 1);
}

TEST(Parser, TakesTheEndsOfEveryRange) {
  const Layer largest = parsed(
      R"({"experts": 4096, "top_k": 1, "hidden": 65536, "intermediate": 65536,
          "max_tokens": 1048576, "splits_alignment": 4096})");
  EXPECT_EQ(largest.experts, 4096);
  EXPECT_EQ(largest.max_tokens, 1 << 20);
  const Layer smallest = parsed(
      R"({"experts": 1, "top_k": 1, "hidden": 16, "intermediate": 16, "max_tokens": 1,
          "splits_alignment": 1})");
  EXPECT_EQ(smallest.max_permuted_rows, 1);
}

TEST(Parser, LetsMaxPermutedRowsReplaceAWorstCaseThatIsTooLarge) {
  const Layer layer = parsed(
      R"({"experts": 4096, "top_k": 4096, "hidden": 16, "intermediate": 16,
          "max_tokens": 1048576, "max_permuted_rows": 1048576})");
  EXPECT_EQ(layer.max_permuted_rows, 1 << 20);
}

TEST(Parser, KnowsTheKeysThatTheWriterWrites) {
  // The recipes with choices: packed weights, powers of two as scales, and histories.
  std::set<std::string_view> written;
  Recipe packed = Recipe::kFp8Flow;
  packed.weights = kPackedTiles;
  for (const Recipe& recipe : {packed, Recipe::kFp8Current, Recipe::kFp8Delayed}) {
    Layer layer;
    layer.recipe = recipe;
    layer.passes.push_back(Pass::kBackward);
    layer.expert_parallel.ranks = 2;
    layer.weight_checks = true;
    layer.backward_linears = true;
    layer.backward_quantizes_weights = true;
    layer.router = RouterFormula{};
    layer.shared.experts = 1;
    layer.fuse_wgrad_accumulation = false;
    for (const LayerInput input : {LayerInput::kTokens, LayerInput::kGrouped}) {
      layer.input = input;
      const std::string text = to_json(layer);
      std::size_t position = 0;
      for (const std::string_view key : layer_keys()) {
        const std::size_t found = text.find("\n  \"" + std::string(key) + "\": ", position);
        if (found == std::string::npos) continue;
        position = found;
        written.insert(key);
      }
    }
  }
  for (const std::string_view key : layer_keys()) EXPECT_TRUE(written.contains(key)) << key;
  EXPECT_EQ(layer_keys().size(), 44u);
}

TEST(Parser, ReadsPackedWeightsOfRecipesWithTilesAlone) {
  const Layer layer = parsed(with(R"("weight_format": "mxfp4")"));
  EXPECT_EQ(layer.recipe.weights, kPackedTiles);
  EXPECT_EQ(parsed(to_json(layer)), layer);
  const auto of_rows =
      parse_layer(with(R"("recipe": "fp8_rowwise", "weight_format": "mxfp4")"), "layer.json");
  ASSERT_FALSE(of_rows);
  EXPECT_NE(of_rows.error().message.find("with the recipe fp8_rowwise, wanted bf16"),
            std::string::npos);
  EXPECT_NE(of_rows.error().hint.find("fp8_flow, fp8_blockwise"), std::string::npos);
  const auto shared =
      parse_layer(with(R"("scale_sharing_k": 2, "weight_format": "mxfp4")"), "layer.json");
  ASSERT_FALSE(shared);
  EXPECT_NE(shared.error().message.find("got mxfp4 with scale_sharing_k 2, wanted bf16"),
            std::string::npos);
}

TEST(Parser, ReadsPackedWeightsBesideBf16) {
  for (const auto& [name, format] :
       {std::pair{"nvfp4", kPackedNvfp4}, std::pair{"int4", kPackedInt4}}) {
    const std::string field = fmt::format(R"("weight_format": "{}")", name);
    const Layer layer = parsed(with(R"("recipe": "bf16", )" + field));
    EXPECT_EQ(layer.recipe.weights, format);
    EXPECT_EQ(parsed(to_json(layer)), layer);
    const auto of_fp8 = parse_layer(with(R"("recipe": "fp8_flow", )" + field), "layer.json");
    ASSERT_FALSE(of_fp8);
    EXPECT_NE(of_fp8.error().hint.find("recipes whose weights are bf16: bf16"), std::string::npos);
  }
  const auto narrow = parse_layer(
      R"({"experts": 8, "top_k": 2, "hidden": 256, "intermediate": 192, "max_tokens": 64,
                      "recipe": "bf16", "weight_format": "int4"})",
      "layer.json");
  ASSERT_FALSE(narrow);
  EXPECT_NE(
      narrow.error().message.find("got 192 with weight_format int4, wanted a multiple of 128"),
      std::string::npos);
}

}  // namespace
}  // namespace moejit::compiler
