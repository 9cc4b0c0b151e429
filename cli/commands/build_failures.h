// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/build_jobs.h"
#include "cli/terminal/terminal.h"

#include <vector>

namespace moejit::cli {

// Returns whether an error concerns one kernel alone, so that others may still be made.
bool is_of_one_kernel(const Error& error);

// Reports each job that failed: a sentence with the layer's file and name, and what to write there
// if the layer can do without the kernel. The error counts them, has the code of the first, and all
// compilers' logs as its detail. Succeeds if all jobs have their kernels.
Result<void> report_failures(const std::vector<BuildJob>& jobs, const Terminal& terminal);

}  // namespace moejit::cli
