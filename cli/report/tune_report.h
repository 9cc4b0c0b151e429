// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/tuning.h"
#include "runtime/tune/decision/journal.h"
#include "runtime/tune/tune_problem.h"
#include "runtime/tune/verify_record.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace moejit::cli {

// The results of a journal in numbers.
struct TuneSummary {
  int64_t problems = 0;
  int64_t settled = 0;
  int64_t gains = 0;         // problems with choices that beat the usual ones
  int64_t candidates = 0;    // of all problems
  int64_t faults = 0;        // candidates that were ruled out
  int64_t changed_bits = 0;  // of these, candidates whose results had other bits
  std::map<std::string, double> estimated_shares;  // of problems for which the journal tells it
};
Result<TuneSummary> summarize(const tune::Journal& journal);

// Return what `moejit tune` prints. `output` is the record's file, or empty; `note` says why the
// sweep ended early, or is empty.
std::string tune_text(const TuneSummary& summary, const compiler::TuningRecord& record,
                      const std::string& output, const std::string& note);
std::string tune_json(const TuneSummary& summary, const compiler::TuningRecord& record);

// Returns the list of what a sweep would measure, and about how long that takes with blocks of
// `block_milliseconds`. It ends with the kernels that the sweep leaves out, from
// unmeasured_kernels().
std::string dry_run_text(const std::vector<tune::TuneProblem>& problems, double block_milliseconds,
                         const std::vector<std::string>& unmeasured);
std::string dry_run_json(const std::vector<tune::TuneProblem>& problems, double block_milliseconds,
                         const std::vector<std::string>& unmeasured);

// Return what `moejit tuning verify` prints.
std::string verification_text(const tune::Verification& verification);
std::string verification_json(const tune::Verification& verification);

}  // namespace moejit::cli
