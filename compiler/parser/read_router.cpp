// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/read_router.h"

#include "compiler/parser/read_fields.h"
#include "compiler/user_formula.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr std::array kRouterKeys = std::to_array<std::string_view>(
    {"score",        "when",         "order",        "bias",    "groups",    "groups_kept",
     "group_score",  "group_fill",   "normalize",    "epsilon", "scale",     "logit_scale",
     "softcap",      "expert_scale", "logits_dtype", "aux",     "aux_score", "z",
     "zero_experts", "ids",          "capacity"});

constexpr std::array kPlainScores = {RouterScore::kSoftmax, RouterScore::kSigmoid,
                                     RouterScore::kSqrtSoftplus};
constexpr std::array kRouterWhens = {RouterWhen::kBefore, RouterWhen::kAfter};
constexpr std::array kRouterOrders = {RouterOrder::kScores, RouterOrder::kLogits};
constexpr std::array kGroupScores = {GroupScore::kMax, GroupScore::kTop2, GroupScore::kSum};
constexpr std::array kGroupFills = {GroupFill::kMinusInfinity, GroupFill::kZero};
constexpr std::array kNormalizes = {RouterNormalize::kNone, RouterNormalize::kSum,
                                    RouterNormalize::kFloor};
constexpr std::array kAuxCounts = {AuxCounts::kNone, AuxCounts::kChosen, AuxCounts::kUnbiased};
constexpr std::array kAuxScores = {AuxScore::kOwn, AuxScore::kSoftmax};
constexpr std::array kRouterIds = {RouterIds::kChosen, RouterIds::kGiven};
constexpr std::array<std::string_view, 2> kLogitsDtypes = {"f32", "bf16"};

Result<Expression> read_score_expression(const JsonView& view) {
  MOEJIT_TRY_ASSIGN(const std::string text, view.read_string());
  const Result<Expression> formula = parse_score(text);
  if (formula) return formula;
  return view.fail(formula.error().code, formula.error().message, formula.error().hint);
}

Result<void> read_score(const JsonView& root, RouterFormula& formula) {
  const std::optional<JsonView> view = root.find("score");
  if (!view) return {};
  if (view->value().kind == JsonKind::kObject) {
    MOEJIT_TRY(view->check_keys(std::array{std::string_view("expression")}));
    MOEJIT_TRY_ASSIGN(const JsonView text, view->at("expression"));
    MOEJIT_TRY_ASSIGN(formula.expression, read_score_expression(text));
    formula.score = RouterScore::kExpression;
    return {};
  }
  MOEJIT_TRY_ASSIGN(formula.score, read_enum(*view, kPlainScores));
  return {};
}

Result<RouterOrder> read_router_order(const JsonView& root, RouterWhen when) {
  const bool is_after = when == RouterWhen::kAfter;
  MOEJIT_TRY_ASSIGN(const RouterOrder order,
                    read_enum_at(root, "order", kRouterOrders,
                                 is_after ? RouterOrder::kLogits : RouterOrder::kScores));
  if (!is_after || order == RouterOrder::kLogits) return order;
  return root.find("order")->fail(
      ErrorCode::kInvalidValue, R"(got "scores" with "when": "after", wanted "logits")",
      "scores that are made of the chosen alone cannot order the choice");
}

// Reads a number that kernels have in fp32: 0 where that is allowed, else a normal number above 0.
Result<double> read_factor(const JsonView& root, std::string_view key, double otherwise,
                           bool may_be_zero) {
  const std::optional<JsonView> view = root.find(key);
  if (!view) return otherwise;
  MOEJIT_TRY_ASSIGN(const double value, view->read_number());
  if (may_be_zero && value == 0.0) return 0.0;
  if (value >= double{FLT_MIN} && value <= double{FLT_MAX}) return value;
  return view->fail(ErrorCode::kInvalidValue,
                    fmt::format("got {}, wanted {}a normal number of fp32 above 0", view->got(),
                                may_be_zero ? "0, or " : ""),
                    fmt::format("the default is {}", otherwise));
}

Result<void> read_expert_groups(const JsonView& root, RouterFormula& formula, int32_t experts) {
  const IntRange range{.lowest = 1, .highest = std::min(kMaxRouterGroups, experts)};
  MOEJIT_TRY_ASSIGN(formula.groups, read_int_at(root, "groups", range, 1));
  if (experts % formula.groups != 0)
    return root.find("groups")->fail(
        ErrorCode::kInvalidValue,
        fmt::format("got {} for {} experts, wanted a divisor", formula.groups, experts),
        "groups have the same number of experts");
  const IntRange up_to_groups{.lowest = 1, .highest = formula.groups, .bound_by = "groups"};
  MOEJIT_TRY_ASSIGN(formula.groups_kept, read_int_at(root, "groups_kept", up_to_groups, 1));
  MOEJIT_TRY_ASSIGN(formula.group_score,
                    read_enum_at(root, "group_score", kGroupScores, formula.group_score));
  MOEJIT_TRY_ASSIGN(formula.group_fill,
                    read_enum_at(root, "group_fill", kGroupFills, formula.group_fill));
  return {};
}

Result<DType> read_logits_dtype(const JsonView& root) {
  const std::optional<JsonView> view = root.find("logits_dtype");
  if (!view) return DType::kF32;
  return view->read_choice(kLogitsDtypes).map([](std::size_t index) {
    return index == 0 ? DType::kF32 : DType::kBF16;
  });
}

// No kernel drops choices beyond a capacity yet. null is what descriptions without one may say.
Result<void> refuse_capacity(const JsonView& root) {
  const std::optional<JsonView> view = root.find("capacity");
  if (!view || view->is_null()) return {};
  return view->fail(ErrorCode::kUnsupported, fmt::format("got {}, not supported", view->got()),
                    "every choice is routed: leave the field out, or drop choices by ids of -1");
}

Result<RouterFormula> read_router_members(const JsonView& root, int32_t experts) {
  RouterFormula formula;
  MOEJIT_TRY(read_score(root, formula));
  MOEJIT_TRY_ASSIGN(formula.when, read_enum_at(root, "when", kRouterWhens, formula.when));
  MOEJIT_TRY_ASSIGN(formula.order, read_router_order(root, formula.when));
  MOEJIT_TRY_ASSIGN(formula.has_bias, read_bool_at(root, "bias", false));
  MOEJIT_TRY(read_expert_groups(root, formula, experts));
  MOEJIT_TRY_ASSIGN(formula.normalize,
                    read_enum_at(root, "normalize", kNormalizes, formula.normalize));
  MOEJIT_TRY_ASSIGN(formula.epsilon, read_factor(root, "epsilon", 0.0, true));
  MOEJIT_TRY_ASSIGN(formula.scale, read_factor(root, "scale", 1.0, false));
  MOEJIT_TRY_ASSIGN(formula.logit_scale, read_factor(root, "logit_scale", 1.0, false));
  MOEJIT_TRY_ASSIGN(formula.softcap, read_factor(root, "softcap", 0.0, true));
  MOEJIT_TRY_ASSIGN(formula.has_expert_scale, read_bool_at(root, "expert_scale", false));
  MOEJIT_TRY_ASSIGN(formula.logits_dtype, read_logits_dtype(root));
  MOEJIT_TRY_ASSIGN(formula.aux, read_enum_at(root, "aux", kAuxCounts, formula.aux));
  MOEJIT_TRY_ASSIGN(formula.aux_score,
                    read_enum_at(root, "aux_score", kAuxScores, formula.aux_score));
  MOEJIT_TRY_ASSIGN(formula.z, read_bool_at(root, "z", false));
  constexpr IntRange kZeroExperts{.lowest = 0, .highest = kMaxRouterExperts};
  MOEJIT_TRY_ASSIGN(formula.zero_experts, read_int_at(root, "zero_experts", kZeroExperts, 0));
  MOEJIT_TRY_ASSIGN(formula.ids, read_enum_at(root, "ids", kRouterIds, formula.ids));
  return formula;
}

}  // namespace

std::span<const std::string_view> router_keys() { return kRouterKeys; }

Result<RouterFormula> read_router(const JsonView& view, int32_t experts, int32_t top_k) {
  MOEJIT_TRY(view.check_keys(kRouterKeys));
  MOEJIT_TRY(refuse_capacity(view));
  MOEJIT_TRY_ASSIGN(RouterFormula formula, read_router_members(view, experts));
  MOEJIT_TRY(check_router(view, formula, experts, top_k));
  return formula;
}

}  // namespace moejit::compiler
