// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"
#include "compiler/operation.h"

namespace moejit::cli {

// Does for an operation what `moejit run` does for a layer. Error kUsage: options that only layers
// have.
Result<void> run_operation(const RunCommand& command,
                           const compiler::OperationDescription& operation, Terminal& terminal);

}  // namespace moejit::cli
