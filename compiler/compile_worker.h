// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

namespace moejit::compiler {

// Serves CompileOptions::worker in the program `moejit`. It reads one kernel from standard input,
// compiles it with NVRTC, and writes the machine code or the compiler's error to standard output.
// The process ends when `parent`, the process that asked, ends. Errors: only of reading and
// writing.
Result<void> serve_compile_worker(int parent);

}  // namespace moejit::compiler
