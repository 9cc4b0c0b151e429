// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/process_commands.h"
#include "compiler/compiler.h"

namespace moejit::cli {

Result<void> run_compile_worker(const CompileWorkerCommand& command, Terminal& /*terminal*/) {
  return compiler::serve_compile_worker(command.parent);
}

}  // namespace moejit::cli
