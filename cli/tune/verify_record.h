// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/commands.h"
#include "cli/tune/verified_entry.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moejit::cli {

// What came of the entries of a record.
struct Verification {
  compiler::GpuIdentity gpu;           // of the record
  std::vector<VerifiedEntry> entries;  // of the sample, in the order in which they were measured
  int64_t usual = 0;  // entries whose choices are the usual ones, so that there is nothing to race
  int64_t elsewhere = 0;              // entries whose problem no layer or case has that was named
  int64_t left_out = 0;               // entries that the sample does not have
  std::optional<int> signal = {};     // that interrupted the command
  std::optional<Error> failure = {};  // of the device, after which nothing more was measured
};

// Races the choices of a record's entries with the usual ones, on a GPU that the record is of.
// Kernels run in a process of their own. Errors: those of the files and of opening the device;
// kUsage without layer or case; kInvalidValue for a record of another GPU or without entries, or if
// none of them is a problem of what was named.
Result<Verification> verify_record(const TuningVerifyCommand& command, const Terminal& terminal);

}  // namespace moejit::cli
