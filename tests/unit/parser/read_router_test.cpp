// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/read_router.h"

#include "compiler/support/file.h"
#include "compiler/support/json_document.h"
#include "tests/support/random_router.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <string>

namespace moejit::compiler {
namespace {

Result<RouterFormula> read(std::string_view json, int32_t experts = 64, int32_t top_k = 8) {
  const Result<JsonDocument> document =
      parse_json(fmt::format("{{\"router\": {}}}", json), {.source_name = "router.json"});
  EXPECT_TRUE(document) << json;
  return read_router(*JsonView(*document).find("router"), experts, top_k);
}

RouterFormula formula_of(std::string_view json, int32_t experts = 64, int32_t top_k = 8) {
  const Result<RouterFormula> formula = read(json, experts, top_k);
  EXPECT_TRUE(formula) << formula.error().message;
  return formula.value_or(RouterFormula{});
}

TEST(RouterParser, FillsInDefaults) {
  const RouterFormula usual = formula_of("{}");
  EXPECT_EQ(usual, RouterFormula{});
  EXPECT_EQ(usual.score, RouterScore::kSoftmax);
  EXPECT_EQ(usual.group_score, GroupScore::kTop2);
  EXPECT_EQ(usual.scale, 1.0);
  EXPECT_EQ(to_json(usual), "{}");
  EXPECT_EQ(formula_of(R"({"when": "after"})").order, RouterOrder::kLogits);
  EXPECT_EQ(formula_of(R"({"capacity": null})"), usual);
}

TEST(RouterParser, ReadsEveryField) {
  RouterFormula expected{.score = RouterScore::kSigmoid,
                         .when = RouterWhen::kBefore,
                         .order = RouterOrder::kLogits,
                         .has_bias = true,
                         .groups = 8,
                         .groups_kept = 4,
                         .group_score = GroupScore::kSum,
                         .normalize = RouterNormalize::kFloor,
                         .epsilon = 1e-12,
                         .scale = 2.5,
                         .logit_scale = 0.5,
                         .softcap = 30.0,
                         .has_expert_scale = true,
                         .logits_dtype = DType::kBF16,
                         .aux = AuxCounts::kUnbiased,
                         .aux_score = AuxScore::kSoftmax,
                         .z = true};
  EXPECT_EQ(formula_of(R"({"score": "sigmoid", "when": "before", "order": "logits", "bias": true,
    "groups": 8, "groups_kept": 4, "group_score": "sum", "group_fill": "-inf",
    "normalize": "floor", "epsilon": 1e-12, "scale": 2.5, "logit_scale": 0.5, "softcap": 30,
    "expert_scale": true, "logits_dtype": "bf16", "aux": "unbiased", "aux_score": "softmax",
    "z": true, "zero_experts": 0, "ids": "chosen"})"),
            expected);
  EXPECT_EQ(formula_of(R"({"score": {"expression": "2 * relu(logit) + 1"}})").expression,
            *parse_expression("2 * relu(logit) + 1", {.variables = {"logit"}, .constants = {}}));
}

// One description for each kind of model of docs/router.md, and one for each other value.
constexpr std::string_view kRouters[] = {
    "{}",
    R"({"normalize": "sum"})",
    R"({"when": "after"})",
    R"({"groups": 8, "groups_kept": 3, "group_score": "max", "group_fill": "zero", "scale": 16})",
    R"({"score": "sigmoid", "bias": true, "groups": 8, "groups_kept": 4, "normalize": "sum", "epsilon": 1e-20, "scale": 2.5})",
    R"({"score": "sqrtsoftplus", "bias": true, "normalize": "sum", "epsilon": 1e-20, "scale": 1.5})",
    R"({"score": "sigmoid", "bias": true, "normalize": "sum", "softcap": 30})",
    R"({"score": "sigmoid", "when": "after", "bias": true, "normalize": "sum"})",
    R"({"bias": true, "scale": 6, "zero_experts": 256})",
    R"({"bias": true, "normalize": "floor", "epsilon": 1e-12})",
    R"({"normalize": "sum", "expert_scale": true})",
    R"({"score": "sigmoid", "order": "logits", "bias": true, "logit_scale": 0.25})",
    R"({"score": {"expression": "exp(-logit) * logit"}, "aux": "unbiased", "aux_score": "softmax"})",
    R"({"score": "sqrtsoftplus", "logits_dtype": "bf16", "ids": "given"})",
    R"({"aux": "chosen", "z": true})"};

TEST(RouterParser, ReadsBackWhatItWrites) {
  for (const std::string_view json : kRouters) {
    SCOPED_TRACE(json);
    const RouterFormula formula = formula_of(json);
    EXPECT_EQ(formula_of(to_json(formula)), formula) << to_json(formula);
    EXPECT_EQ(to_json(formula), json);
  }
}

TEST(RouterParser, KnowsWhatOrdersTheChoice) {
  EXPECT_TRUE(orders_by_logits(formula_of("{}")));
  EXPECT_TRUE(orders_by_logits(formula_of(R"({"when": "after", "bias": true})")));
  EXPECT_FALSE(orders_by_logits(formula_of(R"({"bias": true})")));
  EXPECT_FALSE(orders_by_logits(formula_of(R"({"groups": 2})")));
  EXPECT_FALSE(orders_by_logits(formula_of(R"({"score": {"expression": "logit * logit"}})")));
  EXPECT_EQ(group_score_terms(formula_of(R"({"groups": 8, "groups_kept": 3})"), 8), 2);
  EXPECT_EQ(
      group_score_terms(formula_of(R"({"groups": 8, "groups_kept": 3, "group_score": "sum"})"), 8),
      2);
}

TEST(RouterDocs, DescribeEveryFieldInARowOfTheTable) {
  const std::string page =
      read_text_file(std::string(MOEJIT_SOURCE_DIR) + "/docs/router.md").value();
  for (const std::string_view key : router_keys())
    EXPECT_NE(page.find(fmt::format("\n| `{}` |", key)), std::string::npos)
        << "docs/router.md has no row for " << key;
}

// A random router that is written is read back the same, or refused with a sentence.
TEST(RouterParser, ReadsBackRandomRouters) {
  int read_back = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    testing::SeededRandom random(seed);
    const testing::RandomRouter router = testing::random_router(random);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, router.json));
    const auto experts = static_cast<int32_t>(router.experts);
    const auto top_k = static_cast<int32_t>(router.top_k);
    const Result<RouterFormula> formula = read(router.json, experts, top_k);
    if (!formula) {
      EXPECT_FALSE(formula.error().hint.empty()) << formula.error().message;
      continue;
    }
    ++read_back;
    EXPECT_EQ(formula_of(to_json(*formula), experts, top_k), *formula);
  }
  EXPECT_GT(read_back, 900);
  EXPECT_LT(read_back, 1000) << "some contradict themselves";
}

struct WrongRouter {
  std::string_view json;
  ErrorCode code;
  std::string_view message;  // begins with this, after the source and line
  std::string_view hint;     // contains this
};

constexpr ErrorCode kInvalid = ErrorCode::kInvalidValue;
constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;

// All with 64 experts and 8 choices.
constexpr WrongRouter kWrong[] = {
    {R"("softmax")", ErrorCode::kWrongType, "$.router: got \"softmax\", wanted an object",
     "braces"},
    {R"({"scores": "sigmoid"})", ErrorCode::kUnknownKey, "$.router.scores: unknown key", "score"},
    {R"({"score": "sigmoidd"})", kInvalid, "$.router.score: got \"sigmoidd\"", "sigmoid"},
    {R"({"score": {"expression": "2 * logits"}})", kInvalid,
     "$.router.score.expression: ", "logit"},
    {R"({"score": {"expression": "1 + 1"}})", kInvalid,
     "$.router.score.expression: got a formula without logit", "formula of logit"},
    {R"({"score": {"formula": "logit"}})", ErrorCode::kUnknownKey, "$.router.score.formula", ""},
    {R"({"when": "after", "order": "scores"})", kInvalid,
     R"($.router.order: got "scores" with "when": "after", wanted "logits")", "cannot order"},
    {R"({"bias": 1})", ErrorCode::kWrongType, "$.router.bias: got 1", ""},
    {R"({"groups": 7})", kInvalid, "$.router.groups: got 7 for 64 experts, wanted a divisor",
     "same number"},
    {R"({"groups": 64})", kInvalid, "$.router.groups: got 64, wanted 1 to 32", ""},
    {R"({"groups": 8, "groups_kept": 9})", kInvalid,
     "$.router.groups_kept: got 9, wanted 1 to 8 (groups)", ""},
    {R"({"groups": 32, "groups_kept": 3})", kInvalid,
     "$.router.groups_kept: got 3 groups of 2 experts, wanted at least 8 experts", "keep more"},
    {R"({"group_score": "max"})", kInvalid,
     "$.router.group_score: got a score of groups with 1 group", "leave the field out"},
    {R"({"group_fill": "zero"})", kInvalid,
     "$.router.group_fill: got a fill of groups with 1 group", "leave the field out"},
    {R"({"groups": 16, "groups_kept": 16, "group_score": "sum"})", kInvalid,
     R"($.router.group_score: got "sum" with fewer choices than kept groups)", "floor(top_k"},
    {R"({"when": "after", "groups": 2, "group_fill": "zero"})", kInvalid,
     R"($.router.group_fill: got "zero" with an order of logits, wanted "-inf")", "below 0"},
    {R"({"normalize": "mean"})", kInvalid, "$.router.normalize: got \"mean\"", ""},
    {R"({"epsilon": 1e-20})", kInvalid,
     R"($.router.epsilon: got an epsilon with "normalize": "none")", "add \"normalize\""},
    {R"({"normalize": "floor"})", kInvalid,
     R"($.router.normalize: got "floor" without epsilon, wanted "sum")", "least sum"},
    {R"({"normalize": "sum", "epsilon": 1e-40})", kInvalid,
     "$.router.epsilon: got 1e-40, wanted 0, or a normal number of fp32 above 0", "default is 0"},
    {R"({"normalize": "sum", "epsilon": -1})", kInvalid, "$.router.epsilon: got -1, wanted 0, or",
     ""},
    {R"({"scale": 0})", kInvalid, "$.router.scale: got 0, wanted a normal number of fp32 above 0",
     "default is 1"},
    {R"({"logit_scale": -2.5})", kInvalid, "$.router.logit_scale: got -2.5, wanted a normal", ""},
    {R"({"softcap": 1e39})", kInvalid, "$.router.softcap: got 1e39, wanted 0, or a normal", ""},
    {R"({"logits_dtype": "f16"})", kInvalid, "$.router.logits_dtype: got \"f16\"", ""},
    {R"({"aux": "chosen", "score": {"expression": "logit * logit"}})", kUnsupported,
     "$.router.aux: got a loss over scores of an expression, not supported", "softmax"},
    {R"({"aux": "unbiased"})", kInvalid,
     R"($.router.aux: got "unbiased" without bias and groups, wanted "chosen")", "the same"},
    {R"({"aux_score": "softmax"})", kInvalid,
     R"($.router.aux_score: got a score with "aux": "none")", "add \"aux\""},
    {R"({"zero_experts": 1000})", kInvalid,
     "$.router.zero_experts: got 1000 zero experts beside 64 experts, wanted at most 1024 together",
     "registers"},
    {R"({"groups": 2, "zero_experts": 2})", kUnsupported,
     "$.router.zero_experts: got zero experts with groups, not supported", "or groups"},
    {R"({"ids": "given", "bias": true})", kInvalid,
     R"($.router.bias: got a bias with "ids": "given")", "leave out"},
    {R"({"ids": "given", "groups": 2})", kInvalid,
     R"($.router.groups: got groups with "ids": "given", wanted 1)", "leave out"},
    {R"({"ids": "given", "aux": "unbiased"})", kInvalid,
     R"($.router.aux: got "unbiased" with "ids": "given", wanted "chosen")", "leave out"},
    {R"({"ids": "given", "zero_experts": 4})", kUnsupported,
     R"($.router.zero_experts: got zero experts with "ids": "given", not supported)", "chooses"},
    {R"({"capacity": 1.25})", kUnsupported, "$.router.capacity: got 1.25, not supported",
     "every choice is routed"},
};

TEST(RouterParser, RefusesWithPlaceAndWayOut) {
  for (const WrongRouter& wrong : kWrong) {
    SCOPED_TRACE(wrong.json);
    const Result<RouterFormula> formula = read(wrong.json);
    ASSERT_FALSE(formula) << to_json(*formula);
    const Error& error = formula.error();
    EXPECT_EQ(to_string(error.code), to_string(wrong.code));
    const std::string wanted = fmt::format("router.json:1: {}", wrong.message);
    EXPECT_EQ(error.message.substr(0, wanted.size()), wanted);
    EXPECT_NE(error.hint.find(wrong.hint), std::string::npos) << error.hint;
    EXPECT_TRUE(!error.hint.empty() || error.message.find("one of") != std::string::npos ||
                error.message.find(" to ") != std::string::npos)
        << error.message;
  }
}

TEST(RouterParser, NeedsGroupsOfTwoForTheirTwoLargest) {
  const Result<RouterFormula> formula = read(R"({"groups": 4, "groups_kept": 4})", 4, 2);
  ASSERT_FALSE(formula);
  EXPECT_NE(formula.error().message.find(R"(got "top2" with groups of 1 expert, wanted "max")"),
            std::string::npos)
      << formula.error().message;
  EXPECT_TRUE(read(R"({"groups": 4, "groups_kept": 4, "group_score": "max"})", 4, 2));
}

}  // namespace
}  // namespace moejit::compiler
