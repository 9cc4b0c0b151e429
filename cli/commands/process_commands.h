// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal/terminal.h"
#include "compiler/support/error.h"

#include <cstdint>

namespace moejit::cli {

// The commands about this machine and for other processes. Each has a record, which the command
// line fills (docs/cli.md), and the function that does it. Results go to the terminal's print().

// The command that CompileOptions::worker starts; people do not use it.
struct CompileWorkerCommand {
  int32_t parent = 0;
};
Result<void> run_compile_worker(const CompileWorkerCommand& command, Terminal& terminal);

struct EnvCommand {
  bool is_json = false;
};
Result<void> run_env(const EnvCommand& command, Terminal& terminal);

}  // namespace moejit::cli
