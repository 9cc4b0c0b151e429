// SPDX-License-Identifier: Apache-2.0
#include "runtime/trial/reference_router.h"

#include "compiler/expression.h"

#include <cmath>
#include <memory>

namespace moejit::trial {
namespace {

using compiler::RouterFormula;

reference::RouterScore score_of(compiler::RouterScore score) {
  switch (score) {
    case compiler::RouterScore::kSoftmax: return reference::RouterScore::kSoftmax;
    case compiler::RouterScore::kSigmoid: return reference::RouterScore::kSigmoid;
    case compiler::RouterScore::kSqrtSoftplus: return reference::RouterScore::kSqrtSoftplus;
    case compiler::RouterScore::kExpression: return reference::RouterScore::kFunction;
  }
  return {};
}

reference::RouterGroupScore group_score_of(compiler::GroupScore score) {
  switch (score) {
    case compiler::GroupScore::kMax: return reference::RouterGroupScore::kMax;
    case compiler::GroupScore::kTop2: return reference::RouterGroupScore::kTop2;
    case compiler::GroupScore::kSum: return reference::RouterGroupScore::kSum;
  }
  return {};
}

reference::RouterNormalize normalize_of(compiler::RouterNormalize normalize) {
  switch (normalize) {
    case compiler::RouterNormalize::kNone: return reference::RouterNormalize::kNone;
    case compiler::RouterNormalize::kSum: return reference::RouterNormalize::kSum;
    case compiler::RouterNormalize::kFloor: return reference::RouterNormalize::kFloor;
  }
  return {};
}

// A formula and its derivative, each with twice its error to first order, which covers higher
// orders. The rounding of a product and all of a subnormal number are added.
reference::ScoreFunction function_of(const compiler::Expression& formula) {
  const auto code_of = [](const compiler::Expression& e) {
    return std::make_shared<const compiler::StraightLine>(compiler::straight_line({&e, 1}));
  };
  const auto value_at = [](const auto& code) {
    return [code](double z) { return compiler::evaluate(*code, {{"logit", z}}).front(); };
  };
  const auto error_at = [](const auto& code) {
    return [code](double z) {
      const compiler::BoundedValue bounded = compiler::evaluate_with_error(*code, {{"logit", z}});
      return 2.0 * bounded.error + 0x1p-24 * std::fabs(bounded.value) + 0x1p-126;
    };
  };
  const auto value = code_of(formula);
  const auto slope = code_of(compiler::differentiate(formula, "logit"));
  return {.value = value_at(value),
          .slope = value_at(slope),
          .value_error = error_at(value),
          .slope_error = error_at(slope)};
}

}  // namespace

reference::Router reference_router(const RouterFormula& formula, int64_t experts, int64_t top_k) {
  reference::Router router{.experts = experts,
                           .zero_experts = formula.zero_experts,
                           .top_k = top_k,
                           .score = score_of(formula.score),
                           .is_after = formula.when == compiler::RouterWhen::kAfter,
                           .orders_by_logits = orders_by_logits(formula),
                           .groups = formula.groups,
                           .groups_kept = formula.groups_kept,
                           .group_score = group_score_of(formula.group_score),
                           .fills_with_zero = formula.group_fill == compiler::GroupFill::kZero,
                           .normalize = normalize_of(formula.normalize),
                           .epsilon = static_cast<float>(formula.epsilon),
                           .scale = static_cast<float>(formula.scale),
                           .logit_scale = static_cast<float>(formula.logit_scale),
                           .softcap = static_cast<float>(formula.softcap),
                           .has_aux = formula.aux != compiler::AuxCounts::kNone,
                           .counts_unbiased = formula.aux == compiler::AuxCounts::kUnbiased,
                           .averages_softmax = averages_softmax(formula),
                           .has_z = formula.z};
  if (formula.score == compiler::RouterScore::kExpression)
    router.function = function_of(formula.expression);
  return router;
}

}  // namespace moejit::trial
