// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands/kernel_commands.h"
#include "compiler/layer.h"

namespace moejit::cli {

// Runs `moejit run --ranks R`: a layer with expert_parallel on all ranks of a group in this
// process, each with tokens of its own. With `--check` compares their results with the results of
// one rank that has all tokens. Errors: kUsage if the layer lacks the field or has another number
// of ranks; all of load_group_inputs(); kCheckFailed.
Result<void> run_group(const RunCommand& command, const compiler::Layer& layer, Terminal& terminal);

// Checks --ranks against the description at `path`: error kUsage.
Result<void> check_ranks(int32_t ranks, const compiler::Layer& layer, const std::string& path);

}  // namespace moejit::cli
