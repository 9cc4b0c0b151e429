// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/choices.h"
#include "compiler/support/error.h"
#include "runtime/tune/decision/journal.h"
#include "runtime/tune/decision/race.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moejit::tune {

// A block of a round that is whole.
struct TimedBlock {
  int32_t candidate = 0;
  int32_t round = 1;  // from 1 on through all sessions
  double microseconds = 0.0;
  double ratio = 1.0;  // to the geometric mean of the usual choices' times in this round
  std::optional<double> megahertz, watts;
};

// What a journal has of one race.
struct RaceBlocks {
  std::vector<TimedBlock> blocks;  // in the order in which they were timed
  int32_t rounds = 0;
  std::vector<int32_t> session_starts;  // the first round of each session that has one
  // Blocks that decide nothing: of a round that was cut off, or of a kernel whose text has changed.
  int64_t left_out = 0;
  // By candidate: what was said of its first fault, and the median time of all its blocks.
  std::map<int32_t, std::string> faults;
  std::map<int32_t, double> microseconds;
};

// The race of a problem on a GPU, as far as a journal tells it. A tuner that resumes continues this
// race.
struct ReplayedRace {
  std::string gpu;      // as in the sessions
  std::string problem;  // as in the entries
  std::vector<compiler::Choices> candidates;
  Race race;
  std::vector<std::string> text_digests = {};  // the candidates' digests, or none at all
  std::optional<double> estimated_share = {};  // as in the last list
  std::size_t session = 0;                     // index of the last session that has the problem
  RaceBlocks timed = {};

  // Returns the choices of the race's winner.
  const compiler::Choices& winner() const;
  // Returns whether the race is settled and has a round, so that its winner is worth an entry.
  bool is_decided() const;
};

// Decides every problem of a journal once more, in the order of their first lists. The last list of
// a problem says which candidates race. A race that lacks rounds is not settled. Times of sessions
// with different texts for the GPU are never in one race.
//
// Leaves out times and faults of choices that are not on the last list, or had another text when
// they were found. Leaves out times that the race did not ask for. Also leaves out rounds with
// another default, or without the last time of the default.
//
// Error kInvalidValue: a problem has no list.
Result<std::vector<ReplayedRace>> replay(const Journal& journal, const RaceRules& rules = {});

}  // namespace moejit::tune
