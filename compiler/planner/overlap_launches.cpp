// SPDX-License-Identifier: Apache-2.0
#include "compiler/group_plan.h"
#include "compiler/launch.h"
#include "compiler/planner/grouped_gemm.h"
#include "compiler/planner/planner_steps.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>
#include <variant>

namespace moejit::compiler {
namespace {

// In longer calls launches are hidden behind work, and CTAs that wait take room from those that
// compute: a training step lost 2 % (docs/performance/tried.md).
constexpr int64_t kMostTokens = 512;

bool can_overlap(const KernelPlan& kernel) {
  return std::holds_alternative<RouterSpec>(kernel.spec) ||
         std::holds_alternative<RouteSpec>(kernel.spec) ||
         std::holds_alternative<RoutePermuteSpec>(kernel.spec) ||
         std::holds_alternative<RowChainSpec>(kernel.spec) ||
         std::holds_alternative<GroupedGemmSpec>(kernel.spec);
}

// Returns the kernel before this one in a call if it writes what tells GEMMs their tiles, or null.
const KernelPlan* writer_of_map_before(const Plan& plan, std::size_t kernel) {
  for (const CallPlan& call : plan.calls)
    for (std::size_t i = 1; i < call.steps.size(); ++i) {
      const CallStep &before = call.steps[i - 1], &step = call.steps[i];
      if (step.is_collective || before.is_collective || step.index != kernel) continue;
      const KernelPlan& writer = plan.kernels[before.index];
      if (writes(writer, "offs")) return &writer;  // counts are written with them
    }
  return nullptr;
}

// The ids of a call's choices, and the route that is made of them.
struct RoutedIds {
  const RouteSpec* route;
  KernelArgument argument;
};

// Returns the ids that the writer of the map routes, if counts of them tell where groups begin.
// They do where no row is dropped and groups have no pad rows. Ids in the workspace are left alone:
// what a GEMM writes may take their place, since nobody else reads them.
std::optional<RoutedIds> ids_that_tell_groups(const Plan& plan, const KernelPlan* writer) {
  const auto* const both =
      writer == nullptr ? nullptr : std::get_if<RoutePermuteSpec>(&writer->spec);
  if (both == nullptr || both->route.splits_alignment != 1 ||
      plan.bounds.max_permuted_rows < plan.bounds.max_tokens * plan.bounds.top_k)
    return std::nullopt;
  const auto ids = std::ranges::find(writer->arguments, "topk_ids", &KernelArgument::role);
  if (find_tensor(plan, ids->tensor)->role == TensorRole::kWorkspace) return std::nullopt;
  return RoutedIds{&both->route, *ids};
}

// Lets a GEMM do what it can ahead of its wait. Its own counts of groups take the place of a stage
// where shared memory is full.
void overlap_gemm(const Plan& plan, std::size_t index, KernelPlan& kernel) {
  auto& gemm = std::get<GroupedGemmSpec>(kernel.spec);
  const KernelPlan* const writer = writer_of_map_before(plan, index);
  const std::optional<RoutedIds> ids = ids_that_tell_groups(plan, writer);
  gemm.overlap = overlap_of(gemm, writer != nullptr, ids.has_value());
  if (gemm.overlap != GemmOverlap::kFindsGroups) return;
  gemm.top_k = ids->route->top_k;
  gemm.topk_ids_dtype = ids->route->topk_ids;
  gemm = with_stages(gemm, gemm.stages);
  kernel.launch.shared_bytes = launch_shape(gemm).shared_bytes;
  kernel.arguments.push_back(ids->argument);
}

void overlap(const Plan& plan, std::size_t index, KernelPlan& kernel) {
  if (auto* const router = std::get_if<RouterSpec>(&kernel.spec)) router->overlaps = true;
  if (auto* const route = std::get_if<RouteSpec>(&kernel.spec)) route->overlaps = true;
  if (auto* const both = std::get_if<RoutePermuteSpec>(&kernel.spec)) both->rows.overlaps = true;
  if (auto* const chain = std::get_if<RowChainSpec>(&kernel.spec)) chain->overlaps = true;
  if (std::holds_alternative<GroupedGemmSpec>(kernel.spec)) overlap_gemm(plan, index, kernel);
  kernel.launch.overlaps = true;
}

}  // namespace

void overlap_launches(const Layer& layer, Plan& plan) {
  if (has_backward(layer) || is_of_group(layer) || layer.max_tokens > kMostTokens ||
      !plan.target.features.has_bulk_copies)
    return;
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
