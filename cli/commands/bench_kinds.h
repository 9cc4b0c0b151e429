// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"
#include "compiler/layer.h"
#include "compiler/operation.h"

namespace moejit::cli {

// Runs `moejit bench --gemms`: each case is checked against the reference on a sample, then
// measured. After an error the cases measured before are still printed. kCheckFailed: a result is
// wrong, and its figures are not printed.
Result<void> bench_gemms(const BenchCommand& command, Terminal& terminal);

// Does `moejit bench --ranks R`: times the kernels of a layer with expert_parallel on a group of
// GPUs of this process, calls without a pause, and tells what dispatch and combine bring over the
// wire. Errors: kUsage for a layer without the field, for other ranks than it has, and for options
// that groups do not have.
Result<void> bench_group(const BenchCommand& command, const compiler::Layer& layer,
                         Terminal& terminal);

// Does for an operation what `moejit bench` does for a layer: its kernel, cool and hot. Error
// kUsage: options that only layers have.
Result<void> bench_operation(const BenchCommand& command,
                             const compiler::OperationDescription& operation, Terminal& terminal);

}  // namespace moejit::cli
