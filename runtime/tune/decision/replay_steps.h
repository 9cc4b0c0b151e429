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

// The confirmation of a step on a GPU, as far as a journal tells it. A tuner that resumes goes on
// with this confirmation.
struct ReplayedStep {
  std::string gpu;   // as in the sessions
  std::string step;  // its name: the problem of its entries
  StepConfirmation confirmation;
  std::size_t session = 0;  // index of the last one of which a round counted
};

// Returns the races' choices for the problems of a step on a GPU: the winner's where a race is
// decided, else the usual ones. A problem without a race is left out.
StepList proposed_choices(std::span<const ReplayedRace> races, std::string_view gpu,
                          std::span<const std::string> problems);

// Confirms every step of a journal once more, in the order of their first lists. `races` are the
// journal's. The last list of a step says which choices are measured. A step is left out as if it
// had not been measured if that list has choices or texts that the races no longer propose. Rounds
// of other sets than the confirmation asks for by then are ignored, as are second copies of a
// session's round. Rounds of sessions with different texts for the GPU are never counted together.
// Errors (kInvalidValue): rounds of a step without list.
Result<std::vector<ReplayedStep>> replay_steps(const Journal& journal,
                                               std::span<const ReplayedRace> races,
                                               const StepRules& rules = {});

}  // namespace moejit::tune
