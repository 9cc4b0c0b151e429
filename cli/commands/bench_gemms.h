// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/commands.h"

namespace moejit::cli {

// `moejit bench --gemms`: each case is checked against the reference on a sample, then measured. At
// an error, the cases measured before are printed all the same. kCheckFailed: a result is wrong,
// and no figure of it is printed.
Result<void> bench_gemms(const BenchCommand& command, Terminal& terminal);

}  // namespace moejit::cli
