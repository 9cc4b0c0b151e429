// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/operations/route.h"

#include "compiler/planner/operations/arguments.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::compiler {

KernelPlan make_kernel(const Operation& operation, const Route& route,
                       const KernelContext& context) {
  // Each warp has a histogram over the experts, and each CTA has two more.
  const int32_t histogram_bytes = 4 * route.local_experts;
  const int64_t ids = context.bounds.max_tokens * route.top_k;
  const int64_t useful = std::clamp<int64_t>((ids + 31) / 32, 1, 32);
  const int32_t fitting = context.target.shared_memory_bytes / histogram_bytes - 2;
  const int32_t warps = static_cast<int32_t>(std::clamp<int64_t>(fitting, 1, useful));
  const bool has_colwise_offs = find_write(operation, "colwise_offs") != nullptr;
  KernelPlan kernel{
      .spec = RouteSpec{.local_experts = route.local_experts,
                        .top_k = route.top_k,
                        .splits_alignment = route.splits_alignment,
                        .has_colwise_offs = has_colwise_offs,
                        .warps = warps,
                        .topk_ids = route.topk_ids,
                        .ignores_foreign = route.ignores_foreign},
      .reasons = {fmt::format(
          "each CTA counts all ids and places a part of them, {} warps at a time: one launch, no "
          "barrier between CTAs, stable order",
          warps)},
  };
  add_arguments(
      kernel, operation,
      {"topk_ids", "counts", "offs", "row_map", "status", "colwise_offs", "saved_tokens"});
  if (has_colwise_offs)
    kernel.reasons.emplace_back(
        "groups of columns start at multiples of 128 in wgrad's operands, groups of rows do not");
  return kernel;
}

}  // namespace moejit::compiler
