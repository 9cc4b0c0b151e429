// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/call_bounds.h"
#include "compiler/choices.h"
#include "compiler/launch.h"
#include "compiler/target.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace moejit::compiler {

// A legal spec for a problem, and what was chosen for it where there was a choice. All candidates
// of a problem give the same bits.
template <typename Spec>
struct Candidate {
  Spec spec;
  Choices choices;
};

// Collects the candidates of a problem. Each spec has a function choices_of().
template <typename Spec>
class CandidateList {
 public:
  // Adds a spec unless the list has it already, or it takes more shared memory than a CTA may have.
  void add(const Spec& spec) {
    const auto is_same = [&](const Candidate<Spec>& candidate) { return candidate.spec == spec; };
    if (launch_shape(spec).shared_bytes <= Target{}.shared_memory_bytes &&
        std::ranges::none_of(candidates_, is_same))
      candidates_.push_back({spec, choices_of(spec)});
  }
  std::vector<Candidate<Spec>> take() && { return std::move(candidates_); }

 private:
  std::vector<Candidate<Spec>> candidates_;
};

// Rows of a group in the largest call.
struct GroupRows {
  int64_t mean = 0;  // if all experts, also of other ranks, are chosen alike
  int64_t most = 0;  // of the largest group
};

// Returns the rows of an expert's group in a layer's calls. A token goes to an expert at most once,
// so a group has at most max_tokens rows.
GroupRows group_rows(const CallBounds& bounds);

// Returns how many permuted rows the largest call has on this rank in the mean, pad rows aside; 1
// at least.
int64_t mean_rows(const CallBounds& bounds);

// Returns the middle of the class of row counts that `rows` (1 or more) is in. There are two
// classes to an octave: 1, 1, 2, 3, 4, 6, 8, 11, 16, ...
int64_t rows_class(int64_t rows);

}  // namespace moejit::compiler
