// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/router.h"

#include "compiler/planner/operation.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr std::string_view kRouterWarpReason =
    "a warp for each token, with {} neighboring experts in a lane: the lowest lane of equal values "
    "has the lowest expert";

// Fills the fields that both specs have.
template <typename Spec>
Spec router_spec(const auto& router, const KernelContext& context) {
  return {.formula = router.formula,
          .experts = router.experts,
          .top_k = router.top_k,
          .warps = usual_router_warps(router.formula, router.experts, context.bounds.max_tokens),
          .topk_ids = router.topk_ids};
}

bool router_needs_all_scores(const RouterFormula& formula) {
  return !orders_by_logits(formula) && formula.ids == RouterIds::kChosen;
}

}  // namespace

template <>
KernelPlan make_kernel(const Operation& operation, const Router& router,
                       const KernelContext& context) {
  const RouterFormula& formula = router.formula;
  KernelPlan kernel{
      .spec = router_spec<RouterSpec>(router, context),
      .reasons = {fmt::format(fmt::runtime(kRouterWarpReason),
                              router_experts_per_lane(formula, router.experts)),
                  router_needs_all_scores(formula)
                      ? "scores of all experts, since they order the choice"
                      : "logits order the choice: scores are made of the chosen alone"}};
  if (formula.aux != AuxCounts::kNone || formula.z)
    kernel.reasons.emplace_back(
        "sums over tokens in fixed point: the same bits in any order of tokens, CTAs and ranks");
  add_arguments(kernel, operation,
                {"logits", "router_bias", "expert_scale", "topk_ids", "topk_probs", "chosen_ids",
                 "zero_probs", "counts", "unbiased_counts", "score_sums", "z_sum", "status"});
  return kernel;
}

template <>
KernelPlan make_kernel(const Operation& operation, const RouterBackward& router,
                       const KernelContext& context) {
  KernelPlan kernel{
      .spec = router_spec<RouterBackwardSpec>(router, context),
      .reasons = {reads_all_logits(router.formula)
                      ? "all logits are read again: every expert of a token has a gradient"
                      : "only chosen logits are read again: other experts have no gradient"}};
  add_arguments(kernel, operation, {"logits", "expert_scale", "topk_ids"});
  if (const Port* ids = find_read(operation, "chosen_ids")) add_argument(kernel, "topk_ids", *ids);
  add_arguments(kernel, operation,
                {"dprobs", "dzero_probs", "counts", "aux_coefficient", "z_coefficient", "dlogits",
                 "dexpert_scale"});
  return kernel;
}

}  // namespace moejit::compiler
