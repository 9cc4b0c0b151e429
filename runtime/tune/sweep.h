// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/device_measurer.h"
#include "runtime/tune/tune_observer.h"
#include "runtime/tune/tune_subjects.h"

#include <cstdint>
#include <string>

namespace moejit::tune {

struct SweepOptions {
  MeasureOptions measured;
  double budget_seconds = 1200.0;  // in which problems are measured
  int32_t exhaustive_rounds = 0;   // in which all candidates are timed; 0: a race
};

// How a sweep that had no error came to its end.
enum class SweepEnd { kDone, kStopped, kBudgetSpent };

// Measures the subjects and writes all of it to the journal, to which a sweep that goes on appends.
// Kernels run in a process of their own. Errors: those of opening the device, of the journal, and
// of a device that no longer works; the journal then has what was measured before.
Result<SweepEnd> sweep(const TuneSubjects& subjects, const SweepOptions& options,
                       const std::string& journal_path, TuneObserver& observer);

}  // namespace moejit::tune
