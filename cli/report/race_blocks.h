// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/decision/journal.h"
#include "runtime/tune/decision/replay.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace moejit::cli {

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
  std::map<int32_t, const tune::FoundFault*> faults;  // by candidate: the first one found
};

// Finds the blocks and faults that the race was decided by, as tune::replay() does. The journal
// must outlive the result.
RaceBlocks blocks_of(const tune::Journal& journal, const tune::ReplayedRace& race);

}  // namespace moejit::cli
