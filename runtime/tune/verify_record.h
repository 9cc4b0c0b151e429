// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/device_measurer.h"
#include "runtime/tune/tune_observer.h"
#include "runtime/tune/verified_entry.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moejit::tune {

// What came of the entries of a record.
struct Verification {
  compiler::GpuIdentity gpu;           // of the record
  std::vector<VerifiedEntry> entries;  // of the sample, in the order in which they were measured
  int64_t usual = 0;  // entries whose choices are the usual ones, so that there is nothing to race
  int64_t elsewhere = 0;              // entries whose problem no layer or case has that was named
  int64_t left_out = 0;               // entries that the sample does not have
  std::optional<Error> failure = {};  // of the device, after which nothing more was measured
};

// Races the choices of a record's entries with the usual ones, on a GPU that the record is of, for
// at most `sample` entries if that is given. The layers and cases of `subjects` have their
// problems; `name` is the record's in messages. Kernels run in a process of their own. Errors:
// those of opening the device; kInvalidValue for a record of another GPU or without entries, or if
// none of them is a problem of the subjects.
Result<Verification> verify_record(const compiler::TuningRecord& record, const std::string& name,
                                   TuneSubjects subjects, const MeasureOptions& options,
                                   std::optional<int64_t> sample, TuneObserver& observer);

}  // namespace moejit::tune
