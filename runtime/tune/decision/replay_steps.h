// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/decision/journal.h"
#include "runtime/tune/decision/replay.h"
#include "runtime/tune/decision/step_confirmation.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::tune {

// The confirmation of a step on a GPU, as far as a journal tells it. A tuner that resumes continues
// this confirmation.
struct ReplayedStep {
  std::string gpu;   // as in the sessions
  std::string step;  // its name: the problem of its entries
  StepConfirmation confirmation;
  std::size_t session = 0;  // index of the last session with a round that counted
};

// Returns the races' choices for the problems of a step on a GPU. If a race is decided, these are
// the winner's choices, else the usual ones. A problem without a race is left out.
StepList proposed_choices(std::span<const ReplayedRace> races, std::string_view gpu,
                          std::span<const std::string> problems);

// Confirms every step of a journal once more, in the order of their first lists. `races` are the
// journal's races. The last list of a step says which choices are measured. If that list has
// choices or texts that the races no longer propose, the step is left out as if it had not been
// measured.
//
// Ignored are rounds of other sets than the confirmation asks for at that point, and second copies
// of a session's round. Rounds of sessions with different texts for the GPU are never counted
// together.
//
// Error kInvalidValue: a step has rounds but no list.
Result<std::vector<ReplayedStep>> replay_steps(const Journal& journal,
                                               std::span<const ReplayedRace> races,
                                               const StepRules& rules = {});

}  // namespace moejit::tune
