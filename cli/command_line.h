// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace moejit::cli {

// The whole tool: reads the arguments, does the command, prints, and returns the exit status
// (docs/cli.md). Throws nothing.
int run_command_line(int argc, const char* const* argv);

}  // namespace moejit::cli
