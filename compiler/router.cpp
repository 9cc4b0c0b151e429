// SPDX-License-Identifier: Apache-2.0
#include "compiler/router.h"

#include "compiler/support/json_text.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

// The members of an object, without those that have their defaults.
class Members {
 public:
  template <typename Value>
  void add(std::string_view key, const Value& value, const Value& otherwise) {
    if (!(value == otherwise)) add_text(key, json_of(value));
  }
  void add_text(std::string_view key, std::string_view value) {
    text_ += fmt::format("{}{}: {}", text_.empty() ? "" : ", ", json_string(key), value);
  }
  std::string object() const { return "{" + text_ + "}"; }

 private:
  static std::string json_of(bool value) { return value ? "true" : "false"; }
  static std::string json_of(int32_t value) { return std::to_string(value); }
  static std::string json_of(double value) { return fmt::format("{}", value); }
  static std::string json_of(DType value) {
    return json_string(value == DType::kBF16 ? "bf16" : "f32");
  }
  static std::string json_of(auto value) { return json_string(to_string(value)); }

  std::string text_;
};

}  // namespace

bool orders_by_logits(const RouterFormula& formula) {
  if (formula.order == RouterOrder::kLogits) return true;
  return !formula.has_bias && formula.groups == 1 && formula.score != RouterScore::kExpression;
}

bool averages_softmax(const RouterFormula& formula) {
  return formula.score == RouterScore::kSoftmax || formula.aux_score == AuxScore::kSoftmax;
}

int32_t group_score_terms(const RouterFormula& formula, int32_t top_k) {
  switch (formula.group_score) {
    case GroupScore::kMax: return 1;
    case GroupScore::kTop2: return 2;
    case GroupScore::kSum: return top_k / formula.groups_kept;
  }
  return 1;
}

std::string_view to_string(RouterScore score) {
  switch (score) {
    case RouterScore::kSoftmax: return "softmax";
    case RouterScore::kSigmoid: return "sigmoid";
    case RouterScore::kSqrtSoftplus: return "sqrtsoftplus";
    case RouterScore::kExpression: return "expression";
  }
  return "?";
}

std::string_view to_string(RouterWhen when) {
  return when == RouterWhen::kBefore ? "before" : "after";
}

std::string_view to_string(RouterOrder order) {
  return order == RouterOrder::kScores ? "scores" : "logits";
}

std::string_view to_string(GroupScore score) {
  switch (score) {
    case GroupScore::kMax: return "max";
    case GroupScore::kTop2: return "top2";
    case GroupScore::kSum: return "sum";
  }
  return "?";
}

std::string_view to_string(GroupFill fill) {
  return fill == GroupFill::kMinusInfinity ? "-inf" : "zero";
}

std::string_view to_string(RouterNormalize normalize) {
  switch (normalize) {
    case RouterNormalize::kNone: return "none";
    case RouterNormalize::kSum: return "sum";
    case RouterNormalize::kFloor: return "floor";
  }
  return "?";
}

std::string_view to_string(AuxCounts counts) {
  switch (counts) {
    case AuxCounts::kNone: return "none";
    case AuxCounts::kChosen: return "chosen";
    case AuxCounts::kUnbiased: return "unbiased";
  }
  return "?";
}

std::string_view to_string(AuxScore score) { return score == AuxScore::kOwn ? "own" : "softmax"; }

std::string_view to_string(RouterIds ids) { return ids == RouterIds::kChosen ? "chosen" : "given"; }

std::string to_json(const RouterFormula& formula) {
  const RouterFormula usual;
  Members members;
  if (formula.score == RouterScore::kExpression)
    members.add_text(
        "score", fmt::format("{{\"expression\": {}}}", json_string(to_string(formula.expression))));
  else
    members.add("score", formula.score, usual.score);
  members.add("when", formula.when, usual.when);
  // Scores that are made after the choice leave logits alone to order it.
  if (formula.when == RouterWhen::kBefore) members.add("order", formula.order, usual.order);
  members.add("bias", formula.has_bias, usual.has_bias);
  members.add("groups", formula.groups, usual.groups);
  members.add("groups_kept", formula.groups_kept, usual.groups_kept);
  members.add("group_score", formula.group_score, usual.group_score);
  members.add("group_fill", formula.group_fill, usual.group_fill);
  members.add("normalize", formula.normalize, usual.normalize);
  members.add("epsilon", formula.epsilon, usual.epsilon);
  members.add("scale", formula.scale, usual.scale);
  members.add("logit_scale", formula.logit_scale, usual.logit_scale);
  members.add("softcap", formula.softcap, usual.softcap);
  members.add("expert_scale", formula.has_expert_scale, usual.has_expert_scale);
  members.add("logits_dtype", formula.logits_dtype, usual.logits_dtype);
  members.add("aux", formula.aux, usual.aux);
  members.add("aux_score", formula.aux_score, usual.aux_score);
  members.add("z", formula.z, usual.z);
  members.add("zero_experts", formula.zero_experts, usual.zero_experts);
  members.add("ids", formula.ids, usual.ids);
  return members.object();
}

}  // namespace moejit::compiler
