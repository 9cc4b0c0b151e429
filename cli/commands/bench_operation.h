// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"
#include "compiler/operation.h"

namespace moejit::cli {

// Does for an operation what `moejit bench` does for a layer: its kernel, cool and hot. Error
// kUsage: options that only layers have.
Result<void> bench_operation(const BenchCommand& command,
                             const compiler::OperationDescription& operation, Terminal& terminal);

}  // namespace moejit::cli
