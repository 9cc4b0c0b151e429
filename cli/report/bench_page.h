// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/bench_report.h"

#include <string>

namespace moejit::cli {

// Returns the numbers of bench_table() and bench_json() as a page in HTML, with drawings.
std::string bench_report_html(const compiler::Plan& plan, const BenchReport& report);

// Writes the page to a file; nothing if there is no name. Error kFileWrite.
Result<void> write_bench_report(const std::string& path, const compiler::Plan& plan,
                                const BenchReport& report);

}  // namespace moejit::cli
