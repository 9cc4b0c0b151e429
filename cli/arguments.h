// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal/terminal.h"
#include "compiler/support/error.h"

#include <functional>

namespace moejit::cli {

// What a command line asks for.
using Action = std::function<Result<void>(Terminal&)>;

struct ParsedArguments {
  Action action;
  bool is_verbose = false;
};

// Reads the arguments of the process. `--help` and `--version` are actions too. Errors: kUsage, in
// one sentence, with the nearest known word where one is misspelt.
Result<ParsedArguments> parse_arguments(int argc, const char* const* argv);

}  // namespace moejit::cli
