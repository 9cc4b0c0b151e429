// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/tune/device_measurer.h"
#include "runtime/tune/verified_entry.h"
#include "runtime/tune/watched_process.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moejit::tune {

// What came of verifying the entries of a record.
struct Verification {
  compiler::GpuIdentity gpu;           // of the record
  std::vector<VerifiedEntry> entries;  // of the sample, in the order in which they were measured
  int64_t usual = 0;      // entries whose choices are the usual ones, so there is nothing to race
  int64_t elsewhere = 0;  // entries whose problem is in none of the named layers and cases
  int64_t left_out = 0;   // entries that are not in the sample
  std::optional<Error> failure = {};  // error of the device, after which nothing was measured
};

// Races the choices of a record's entries with the usual ones, on the GPU that the record names.
// Takes at most `sample` entries, if that is given. The problems of the entries are looked for in
// the layers and cases of `subjects`. `name` is the record's name in messages. Kernels run in a
// process of their own.
//
// Returns the errors of opening the device. kInvalidValue: the record is of another GPU or has no
// entries, or the subjects have none of its problems.
Result<Verification> verify_record(const compiler::TuningRecord& record, const std::string& name,
                                   TuneSubjects subjects, const MeasureOptions& options,
                                   std::optional<int64_t> sample, TuneObserver& observer);

}  // namespace moejit::tune
