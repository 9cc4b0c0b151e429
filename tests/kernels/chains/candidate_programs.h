// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/candidates.h"
#include "tests/tested_target.h"

#include <algorithm>
#include <vector>

namespace moejit::testing {

inline const bool kIsSimulator = tested_target() == "sim";

// Calls with so many rows that every candidate has work for several CTAs.
inline constexpr compiler::CallBounds kManyRows{
    .max_tokens = 4096, .top_k = 1, .groups = 4, .max_permuted_rows = 4096};

// Returns the specs of candidates that are different programs on the target, in their order: the
// simulator knows no registers.
template <typename Spec>
std::vector<Spec> programs_of(const std::vector<compiler::Candidate<Spec>>& candidates) {
  std::vector<Spec> programs;
  for (const auto& candidate : candidates) {
    Spec spec = candidate.spec;
    if (kIsSimulator) spec.threads_per_sm = 0;
    if (std::ranges::find(programs, spec) == programs.end()) programs.push_back(spec);
  }
  return programs;
}

}  // namespace moejit::testing
