// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/tune_report.h"
#include "compiler/tuning.h"
#include "runtime/tune/decision/journal.h"

#include <string>
#include <vector>

namespace moejit::cli {

// Returns a sweep as a page in HTML: what was found, and for each problem all blocks, clocks and
// candidates. `record` has the entries of the journal's settled races. Errors: all of
// tune::replay().
Result<std::string> tune_report_html(const tune::Journal& journal,
                                     const compiler::TuningRecord& record);

}  // namespace moejit::cli
