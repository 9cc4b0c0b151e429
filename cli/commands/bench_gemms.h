// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"

namespace moejit::cli {

// Runs `moejit bench --gemms`: each case is checked against the reference on a sample, then
// measured. After an error the cases measured before are still printed. kCheckFailed: a result is
// wrong, and its figures are not printed.
Result<void> bench_gemms(const BenchCommand& command, Terminal& terminal);

}  // namespace moejit::cli
