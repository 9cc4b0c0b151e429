// SPDX-License-Identifier: Apache-2.0
#include "compiler/group_plan.h"
#include "compiler/launch.h"
#include "compiler/planner/planner_steps.h"

#include <algorithm>
#include <fmt/core.h>
#include <variant>

namespace moejit::compiler {
namespace {

// In longer calls launches are hidden behind work, and CTAs that wait take room from those that
// compute: a training step lost 2 % (docs/performance/tried.md).
constexpr int64_t kMostTokens = 512;

bool can_overlap(const KernelPlan& kernel) {
  return std::holds_alternative<RouteSpec>(kernel.spec) ||
         std::holds_alternative<RoutePermuteSpec>(kernel.spec) ||
         std::holds_alternative<RowChainSpec>(kernel.spec) ||
         std::holds_alternative<GroupedGemmSpec>(kernel.spec);
}

// Returns whether a kernel of a call follows one that writes what tells GEMMs their tiles.
bool follows_writer_of_map(const Plan& plan, std::size_t kernel) {
  return std::ranges::any_of(plan.calls, [&](const CallPlan& call) {
    for (std::size_t i = 1; i < call.steps.size(); ++i) {
      const CallStep &before = call.steps[i - 1], &step = call.steps[i];
      if (step.is_collective || before.is_collective || step.index != kernel) continue;
      const KernelPlan& writer = plan.kernels[before.index];
      if (writes(writer, "counts") || writes(writer, "offs")) return true;
    }
    return false;
  });
}

void overlap(const Plan& plan, std::size_t index, KernelPlan& kernel) {
  if (auto* const route = std::get_if<RouteSpec>(&kernel.spec)) route->overlaps = true;
  if (auto* const both = std::get_if<RoutePermuteSpec>(&kernel.spec)) both->rows.overlaps = true;
  if (auto* const chain = std::get_if<RowChainSpec>(&kernel.spec)) chain->overlaps = true;
  if (auto* const gemm = std::get_if<GroupedGemmSpec>(&kernel.spec))
    gemm->overlap = overlap_of(*gemm, follows_writer_of_map(plan, index));
  kernel.launch.overlaps = true;
}

}  // namespace

void overlap_launches(const Layer& layer, Plan& plan) {
  if (has_backward(layer) || is_of_group(layer) || layer.max_tokens > kMostTokens) return;
  bool is_any = false;
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    KernelPlan& kernel = plan.kernels[i];
    if (kernel.phase != "forward" || !can_overlap(kernel)) continue;
    overlap(plan, i, kernel);
    is_any = true;
  }
  if (!is_any) return;
  plan.reasons.push_back(
      fmt::format("launches of forward overlap, since calls have at most {} tokens: a kernel "
                  "begins while the kernel before ends, and waits for it itself",
                  layer.max_tokens));
}

}  // namespace moejit::compiler
