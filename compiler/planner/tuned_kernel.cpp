// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/tuned_kernel.h"

#include "compiler/planner/row_chain_candidates.h"
#include "compiler/planner/transpose_candidates.h"
#include "compiler/planner/tuned_candidate.h"

#include <fmt/core.h>
#include <variant>

namespace moejit::compiler {
namespace {

template <typename Spec>
Spec tuned_spec(KernelPlan& kernel, const Spec& usual, const CallBounds& bounds,
                const PlanOptions& options) {
  kernel.problem = problem_name(usual, bounds);
  return choose_candidate(
      kernel, options, [&] { return usual; }, [&] { return candidates_of(usual, bounds); });
}

void add_burst_reason(KernelPlan& kernel, const RowChainSpec& spec) {
  if (spec.rows_per_burst == 0) return;
  kernel.reasons.push_back(
      fmt::format("L2 is asked for {} rows at once: memory turns less often from writing to "
                  "reading",
                  spec.rows_per_burst));
}

}  // namespace

void tune_kernel(KernelPlan& kernel, const CallBounds& bounds, const PlanOptions& options) {
  if (const auto* const chain = std::get_if<RowChainSpec>(&kernel.spec)) {
    const RowChainSpec spec = tuned_spec(kernel, *chain, bounds, options);
    add_burst_reason(kernel, spec);
    kernel.spec = spec;
  } else if (const auto* const transpose = std::get_if<TransposeSpec>(&kernel.spec)) {
    kernel.spec = tuned_spec(kernel, TransposeSpec(*transpose), bounds, options);
  } else if (const auto* const cast = std::get_if<ColumnCastSpec>(&kernel.spec)) {
    kernel.spec = tuned_spec(kernel, ColumnCastSpec(*cast), bounds, options);
  } else if (const auto* const gradient = std::get_if<GatedGradientSpec>(&kernel.spec)) {
    kernel.spec = tuned_spec(kernel, GatedGradientSpec(*gradient), bounds, options);
  } else if (const auto* const columns = std::get_if<GroupColumnsSpec>(&kernel.spec)) {
    kernel.spec = tuned_spec(kernel, GroupColumnsSpec(*columns), bounds, options);
  }
}

}  // namespace moejit::compiler
