// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/device_measurer.h"
#include "runtime/tune/race_kernel.h"
#include "runtime/tune/tune_problem.h"

#include <cstdint>
#include <string>

namespace moejit::tune {

struct SweepOptions {
  MeasureOptions measured;
  double budget_seconds = 1200.0;  // time in which problems are measured
  int32_t exhaustive_rounds = 0;   // rounds that time all candidates; 0: a race decides
};

// How a sweep without an error ended.
enum class SweepEnd { kDone, kStopped, kBudgetSpent };

// Measures the subjects and writes everything to the journal; a sweep that goes on appends to its
// journal. Kernels run in a process of their own. If a problem's usual kernel cannot be run, the
// observer is warned and the problem is left out. Returns errors of opening the device, of the
// journal, and of a device that no longer works. kInvalidValue: the journal is of another GPU.
// After an error the journal has what was measured before.
Result<SweepEnd> sweep(const TuneSubjects& subjects, const SweepOptions& options,
                       const std::string& journal_path, TuneObserver& observer);

// Returns the header of a journal's new session, which begins now on this device.
Session new_session(const MeasuredDevice& device);

// Races a problem, for which the journal gets a list of candidates. Goes on from the rounds that
// the journal at `journal_path` has of it, and adds to `race`, which is empty before. Returns
// errors as race_kernel() does; then the list has the usual choices' fault, for people.
Result<void> race_problem(const TuneProblem& problem, std::size_t index,
                          const MeasuredDevice& device, const std::string& journal_path,
                          const RaceSite& site, std::optional<Race>& race);

}  // namespace moejit::tune
