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

// The race of a problem on a GPU, as far as a journal tells it. A tuner that resumes continues this
// race.
struct ReplayedRace {
  std::string gpu;      // as in the sessions
  std::string problem;  // as in the entries
  std::vector<compiler::Choices> candidates;
  Race race;
  std::vector<std::string> text_digests = {};  // the candidates' digests, or none at all
  std::optional<double> estimated_share = {};  // as in the last list

  // Returns the choices of the race's winner.
  const compiler::Choices& winner() const;
  // Returns whether the race is settled and has a round, so that its winner is worth an entry.
  bool is_decided() const;
};

// Returns the digest of the text that these choices had when the list was made. Empty if it is not
// known.
std::string text_digest_of(const CandidateList& list, const compiler::Choices& choices);

// Decides every problem of a journal once more, in the order of their first lists. The last list of
// a problem says which candidates race. A race that lacks rounds is not settled. Times of sessions
// with different texts for the GPU are never in one race.
//
// Ignored are times and faults of choices that are not on the last list, or had another text when
// they were found. Also ignored are times that the race did not ask for. The same holds for rounds
// without a last time of the default, or with another default.
//
// Error kInvalidValue: a problem has no list.
Result<std::vector<ReplayedRace>> replay(const Journal& journal, const RaceRules& rules = {});

}  // namespace moejit::tune
