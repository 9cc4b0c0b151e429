// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"
#include "compiler/layer.h"

namespace moejit::cli {

// Does `moejit bench --ranks R`: times the kernels of a layer with expert_parallel on a group of
// GPUs of this process, calls without a pause, and tells what dispatch and combine bring over the
// wire. Errors: kUsage for a layer without the field, for other ranks than it has, and for options
// that groups do not have.
Result<void> bench_group(const BenchCommand& command, const compiler::Layer& layer,
                         Terminal& terminal);

}  // namespace moejit::cli
