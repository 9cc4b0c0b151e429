// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/build_jobs.h"
#include "cli/terminal/terminal.h"

#include <vector>

namespace moejit::cli {

// Returns whether an error concerns one kernel alone, so that others may still be made.
bool is_of_one_kernel(const Error& error);

// Reports each job that failed in a sentence with the layer's file and name. If the layer can do
// without the kernel, the sentence tells what to write there. The error counts the failed jobs, has
// the code of the first, and all compilers' logs as its detail. Succeeds if all jobs have their
// kernels.
Result<void> report_failures(const std::vector<BuildJob>& jobs, const Terminal& terminal);

}  // namespace moejit::cli
