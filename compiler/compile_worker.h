// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/error.h"

namespace moejit::compiler {

// The other side of CompileOptions::worker, for the program `moejit`: reads one kernel from
// standard input, compiles it with NVRTC, and writes the machine code or the compiler's error to
// standard output. It ends with `parent`, the process that asked. Errors: of reading and writing
// only.
Result<void> serve_compile_worker(int parent);

}  // namespace moejit::compiler
