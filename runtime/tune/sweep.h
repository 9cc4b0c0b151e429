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
  double budget_seconds = 1200.0;  // time in which problems are measured
  int32_t exhaustive_rounds = 0;   // rounds that time all candidates; 0: a race decides
};

// How a sweep without an error ended.
enum class SweepEnd { kDone, kStopped, kBudgetSpent };

// Measures the subjects and writes everything to the journal; a sweep that goes on appends to its
// journal. Kernels run in a process of their own. Returns errors of opening the device, of the
// journal, and of a device that no longer works. After an error the journal has what was measured
// before.
Result<SweepEnd> sweep(const TuneSubjects& subjects, const SweepOptions& options,
                       const std::string& journal_path, TuneObserver& observer);

}  // namespace moejit::tune
