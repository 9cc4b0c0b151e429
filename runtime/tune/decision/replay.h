// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/choices.h"
#include "compiler/support/error.h"
#include "runtime/tune/decision/journal.h"
#include "runtime/tune/decision/race.h"

#include <optional>
#include <string>
#include <vector>

namespace moejit::tune {

// The race of a problem on a GPU, as far as a journal tells it. A tuner that resumes goes on with
// this race.
struct ReplayedRace {
  std::string gpu;      // as in the sessions
  std::string problem;  // as in the entries
  std::vector<compiler::Choices> candidates;
  Race race;
  std::vector<std::string> text_digests = {};  // of the candidates; or none at all
  std::optional<double> estimated_share = {};  // as in the last list

  // Returns the choices of the race's winner.
  const compiler::Choices& winner() const;
  // Returns whether the race is settled and has a round, so that its winner is worth an entry.
  bool is_decided() const;
};

// Returns the digest of the text that these choices had when the list was made; empty if it is not
// known.
std::string text_digest_of(const CandidateList& list, const compiler::Choices& choices);

// Decides every problem of a journal once more, in the order of their first lists. The last list of
// a problem says who races. Ignored are times and faults of choices that are not on it, or had
// another text when they were found. Times that the race did not ask for are ignored too. So are
// rounds that have no last time of the default or whose default is another one. A race that lacks
// rounds is not settled. Times of sessions with different texts for the GPU are never in one race.
// Errors (kInvalidValue): a problem without list. Events of steps are not looked at; see
// replay_steps().
Result<std::vector<ReplayedRace>> replay(const Journal& journal, const RaceRules& rules = {});

}  // namespace moejit::tune
