// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal/terminal.h"
#include "compiler/support/error.h"
#include "compiler/target.h"

#include <string>

namespace moejit::cli {

// The command about this machine: a record, which the command line fills (docs/cli.md), and the
// function that does it. Results go to the terminal's print().

struct EnvCommand {
  bool is_json = false;
};
Result<void> run_env(const EnvCommand& command, Terminal& terminal);

// Returns what the keys of a target's kernels hold of its compiler: "compiler=nvrtc 13.0, ...".
Result<std::string> compiler_in_keys(const compiler::Target& target);

}  // namespace moejit::cli
