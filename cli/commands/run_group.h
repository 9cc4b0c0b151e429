// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"
#include "compiler/layer.h"

namespace moejit::cli {

// Does `moejit run --ranks R`: runs a layer with expert_parallel on all ranks of a group in this
// process, each with tokens of its own, and with `--check` compares what they compute with one
// rank that has all tokens. Errors: kUsage for a layer without the field or for other ranks than it
// has; those of load_group_inputs(); kCheckFailed.
Result<void> run_group(const RunCommand& command, const compiler::Layer& layer, Terminal& terminal);

// Checks --ranks against the description at `path`: error kUsage.
Result<void> check_ranks(int32_t ranks, const compiler::Layer& layer, const std::string& path);

}  // namespace moejit::cli
