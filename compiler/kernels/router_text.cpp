// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/emitter.h"
#include "compiler/kernels/router.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

std::string_view router_value_name(RouterScore score) {
  switch (score) {
    case RouterScore::kSoftmax: return "kSoftmax";
    case RouterScore::kSigmoid: return "kSigmoid";
    case RouterScore::kSqrtSoftplus: return "kSqrtSoftplus";
    case RouterScore::kExpression: return "kExpression";
  }
  return "";
}

std::string_view router_value_name(RouterNormalize normalize) {
  switch (normalize) {
    case RouterNormalize::kNone: return "kNone";
    case RouterNormalize::kSum: return "kSum";
    case RouterNormalize::kFloor: return "kFloor";
  }
  return "";
}

// The members that differ from UsualRouterFormula.
class FormulaMembers {
 public:
  void flag(std::string_view name, bool value) {
    if (value) add("bool", name, "true");
  }
  void integer(std::string_view name, int32_t value, int32_t usual) {
    if (value != usual) add("int32_t", name, std::to_string(value));
  }
  void number(std::string_view name, double value, double usual) {
    if (value != usual) add("float", name, float_literal(value));
  }
  template <typename Enum>
  void choice(std::string_view name, std::string_view type, Enum value, Enum usual) {
    if (value != usual) add("auto", name, fmt::format("{}::{}", type, router_value_name(value)));
  }
  const std::string& text() const { return text_; }

 private:
  void add(std::string_view type, std::string_view name, std::string_view value) {
    text_ += fmt::format("  static constexpr {} {} = {};\n", type, name, value);
  }
  std::string text_;
};

}  // namespace

std::string router_formula_text(const RouterFormula& formula, int32_t top_k, bool is_backward) {
  const RouterFormula usual;
  FormulaMembers members;
  members.choice("kScore", "RouterScore", formula.score, usual.score);
  members.flag("kIsAfter", formula.when == RouterWhen::kAfter);
  members.flag("kOrdersLogits", orders_by_logits(formula));
  members.flag("kHasBias", formula.has_bias);
  members.integer("kGroups", formula.groups, 1);
  members.integer("kGroupsKept", formula.groups_kept, 1);
  if (formula.groups > 1) members.integer("kGroupTerms", group_score_terms(formula, top_k), 1);
  members.flag("kFillsZero", formula.group_fill == GroupFill::kZero);
  members.choice("kNormalize", "RouterNormalize", formula.normalize, usual.normalize);
  members.number("kEpsilon", formula.epsilon, 0.0);
  members.number("kScale", formula.scale, 1.0);
  members.number("kLogitScale", formula.logit_scale, 1.0);
  members.number("kSoftcap", formula.softcap, 0.0);
  members.flag("kHasExpertScale", formula.has_expert_scale);
  members.flag("kHasAux", formula.aux != AuxCounts::kNone);
  members.flag("kAveragesSoftmax", formula.aux != AuxCounts::kNone && averages_softmax(formula));
  members.flag("kCountsUnbiased", formula.aux == AuxCounts::kUnbiased);
  members.flag("kHasZ", formula.z);
  members.integer("kZeroExperts", formula.zero_experts, 0);
  members.flag("kHasGivenIds", formula.ids == RouterIds::kGiven);
  std::string functions;
  if (formula.score == RouterScore::kExpression) {
    functions = function_text("value", "logit", formula.expression);
    if (is_backward)
      functions += function_text("slope", "logit", differentiate(formula.expression, "logit"));
  }
  return fmt::format("struct Formula : UsualRouterFormula {{\n{}{}}};\n", members.text(),
                     functions);
}

}  // namespace moejit::compiler
