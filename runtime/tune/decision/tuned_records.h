// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/tuning.h"
#include "runtime/tune/decision/journal.h"
#include "runtime/tune/decision/race.h"

#include <vector>

namespace moejit::tune {

// Decides the races of a journal, as replay() does, and returns a record for each GPU of its
// sessions.
//
// A record has an entry for each problem whose race is settled: the winner, with its ratio, or the
// default. Times are medians over all blocks. `date` and `version` come from the context of the
// last session that measured the problem.
//
// Returns errors as replay() does, and as compiler::parse_gpu_identity() does for the GPU of a
// session.
Result<std::vector<compiler::TuningRecord>> tuned_records(const Journal& journal,
                                                          const RaceRules& rules = {});

// Returns an older record without the entries of all problems that the journal decides anew for its
// GPU. merge() with the new record then gives what holds now, however well founded the old one was.
// Returns errors as tuned_records() does.
Result<compiler::TuningRecord> without_decided(compiler::TuningRecord before,
                                               const Journal& journal);

}  // namespace moejit::tune
