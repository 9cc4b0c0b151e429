// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/planner/candidate.h"

#include <vector>

namespace moejit::compiler {

// Returns the spec of a kernel whose problem is set. If the options' records name choices for the
// problem, it is the spec of `list()` with these choices, else the spec of `choose()`. Sets the
// kernel's choices, and its candidates if they are asked for. Without records nothing is listed.
template <typename Choose, typename List>
auto choose_candidate(KernelPlan& kernel, const PlanOptions& options, const Choose& choose,
                      const List& list) {
  auto spec = choose();
  kernel.choices = choices_of(spec);
  if (options.tuning == nullptr && !options.list_candidates) return spec;
  const auto found =
      options.tuning == nullptr ? std::nullopt : options.tuning->find(kernel.problem);
  for (const auto& candidate : list()) {
    if (options.list_candidates) kernel.candidates.push_back(candidate.choices);
    if (!found || candidate.choices != found->entry->choices) continue;
    spec = candidate.spec;
    kernel.choices = candidate.choices;
  }
  return spec;
}

// Adds a sentence to the kernel's reasons. It says whether its choices come from a record, with
// what gain, or why they are the usual ones. Adds nothing without records, or if the kernel is not
// tuned.
void explain_tuning(KernelPlan& kernel, const Target& target, const Tuning* tuning);

}  // namespace moejit::compiler
