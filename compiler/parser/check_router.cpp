// SPDX-License-Identifier: Apache-2.0
#include "compiler/parser/read_router.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <string>

namespace moejit::compiler {
namespace {

// Two fields that contradict each other, or that no kernel can do together.
struct Contradiction {
  bool holds;
  std::string_view key;  // the field to blame
  std::string_view what;
  std::string_view hint;
  ErrorCode code = ErrorCode::kInvalidValue;
};

Result<void> refuse_first(const JsonView& root, std::span<const Contradiction> contradictions) {
  const auto found = std::ranges::find_if(contradictions, &Contradiction::holds);
  if (found == contradictions.end()) return {};
  const JsonView view = root.find(found->key).value_or(root);
  return view.fail(found->code, found->what, std::string(found->hint));
}

Result<void> check_kept_groups(const JsonView& root, const RouterFormula& of, int32_t experts,
                               int32_t top_k) {
  const int32_t in_group = experts / of.groups;
  const std::string too_few = fmt::format("got {} groups of {} experts, wanted at least {} experts",
                                          of.groups_kept, in_group, top_k);
  const RouterFormula usual;
  constexpr std::string_view kNoGroups = "without groups nothing is kept: leave the field out";
  return refuse_first(
      root,
      std::array{
          Contradiction{of.groups == 1 && of.group_score != usual.group_score, "group_score",
                        "got a score of groups with 1 group", kNoGroups},
          Contradiction{of.groups == 1 && of.group_fill != usual.group_fill, "group_fill",
                        "got a fill of groups with 1 group", kNoGroups},
          Contradiction{of.groups_kept * in_group < top_k, "groups_kept", too_few,
                        "keep more groups: a token has top_k different experts"},
          Contradiction{of.groups > 1 && in_group == 1 && of.group_score == GroupScore::kTop2,
                        "group_score", R"(got "top2" with groups of 1 expert, wanted "max")",
                        "the default is top2, which needs groups of 2 experts or more"},
          Contradiction{of.group_score == GroupScore::kSum && top_k < of.groups_kept, "group_score",
                        R"(got "sum" with fewer choices than kept groups, wanted "max" or "top2")",
                        "the sum has floor(top_k / groups_kept) terms"},
          Contradiction{of.group_fill == GroupFill::kZero && of.order == RouterOrder::kLogits,
                        "group_fill", R"(got "zero" with an order of logits, wanted "-inf")",
                        "logits may be below 0: experts of other groups would be chosen"},
          Contradiction{of.groups > 1 && of.zero_experts > 0, "zero_experts",
                        "got zero experts with groups, not supported",
                        "supported: zero experts, or groups", ErrorCode::kUnsupported}});
}

Result<void> check_normalization(const JsonView& root, const RouterFormula& of) {
  return refuse_first(
      root,
      std::array{Contradiction{of.normalize == RouterNormalize::kNone && of.epsilon != 0.0,
                               "epsilon", R"(got an epsilon with "normalize": "none", wanted 0)",
                               "epsilon is added to the sum, or is the least sum, that weights are "
                               "divided by: add \"normalize\""},
                 Contradiction{of.normalize == RouterNormalize::kFloor && of.epsilon == 0.0,
                               "normalize", R"(got "floor" without epsilon, wanted "sum")",
                               "epsilon is the least sum that weights are divided by"}});
}

Result<void> check_given_ids(const JsonView& root, const RouterFormula& of) {
  if (of.ids == RouterIds::kChosen) return {};
  constexpr std::string_view kHint =
      "the caller brings the choice: leave out what only makes a choice";
  return refuse_first(
      root,
      std::array{Contradiction{of.has_bias, "bias", R"(got a bias with "ids": "given")", kHint},
                 Contradiction{of.groups > 1, "groups",
                               R"(got groups with "ids": "given", wanted 1)", kHint},
                 Contradiction{of.aux == AuxCounts::kUnbiased, "aux",
                               R"(got "unbiased" with "ids": "given", wanted "chosen")", kHint},
                 Contradiction{of.zero_experts > 0, "zero_experts",
                               R"(got zero experts with "ids": "given", not supported)",
                               "supported: zero experts that the router chooses",
                               ErrorCode::kUnsupported}});
}

Result<void> check_router_losses(const JsonView& root, const RouterFormula& of) {
  const bool has_aux = of.aux != AuxCounts::kNone;
  return refuse_first(
      root,
      std::array{Contradiction{of.aux_score != AuxScore::kOwn && !has_aux, "aux_score",
                               R"(got a score with "aux": "none")",
                               R"(add "aux", or leave the field out)"},
                 Contradiction{has_aux && of.score == RouterScore::kExpression &&
                                   of.aux_score == AuxScore::kOwn,
                               "aux", "got a loss over scores of an expression, not supported",
                               R"(supported: "aux_score": "softmax")", ErrorCode::kUnsupported},
                 Contradiction{of.aux == AuxCounts::kUnbiased && orders_by_logits(of) &&
                                   !of.has_bias && of.groups == 1,
                               "aux", R"(got "unbiased" without bias and groups, wanted "chosen")",
                               "the choice is unbiased: a second one would be the same"}});
}

Result<void> check_expert_count(const JsonView& root, const RouterFormula& formula,
                                int32_t experts) {
  if (experts + formula.zero_experts <= kMaxRouterExperts) return {};
  return root.find("zero_experts")
      .value_or(root)
      .fail(ErrorCode::kInvalidValue,
            fmt::format("got {} zero experts beside {} experts, wanted at most {} together",
                        formula.zero_experts, experts, kMaxRouterExperts),
            "kernels keep a token's logits in the registers of one warp");
}

}  // namespace

Result<void> check_router(const JsonView& view, const RouterFormula& formula, int32_t experts,
                          int32_t top_k) {
  MOEJIT_TRY(check_expert_count(view, formula, experts));
  MOEJIT_TRY(check_kept_groups(view, formula, experts, top_k));
  MOEJIT_TRY(check_normalization(view, formula));
  MOEJIT_TRY(check_given_ids(view, formula));
  return check_router_losses(view, formula);
}

}  // namespace moejit::compiler
