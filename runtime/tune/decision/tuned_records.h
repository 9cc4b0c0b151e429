// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/tuning.h"
#include "runtime/tune/decision/journal.h"
#include "runtime/tune/decision/race.h"
#include "runtime/tune/decision/step_confirmation.h"

#include <vector>

namespace moejit::tune {

// Decides the races and steps of a journal, as replay() and replay_steps() do, and returns a record
// for each GPU of its sessions.
//
// A record has an entry for each problem whose race is settled: the winner, with its ratio, or the
// default. Choices that any step has dropped get no entry. A step that is not decided yet drops
// none of the choices that it is measuring. The record also has the steps that are confirmed. Times
// are medians over all blocks, for a step over the blocks of the confirmed set. `date` and
// `version` come from the context of the last session that measured the problem or step.
//
// Returns errors as replay() and replay_steps() do, and as compiler::parse_gpu_identity() does for
// the GPU of a session.
Result<std::vector<compiler::TuningRecord>> tuned_records(const Journal& journal,
                                                          const RaceRules& race_rules = {},
                                                          const StepRules& step_rules = {});

// Returns an older record without what the journal decides anew for its GPU. Left out are all steps
// that the journal lists, and the entries of all problems whose race is settled. Such an entry goes
// even if a step has dropped its choices. merge() with the new record then gives what holds now,
// however well founded the old one was. Returns errors as tuned_records() does.
Result<compiler::TuningRecord> without_decided(compiler::TuningRecord before,
                                               const Journal& journal);

}  // namespace moejit::tune
