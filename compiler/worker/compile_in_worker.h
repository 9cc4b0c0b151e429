// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/kernel_source.h"
#include "compiler/support/error.h"

#include <stop_token>
#include <string>

namespace moejit::compiler {

// Compiles as compile_with_nvrtc_and_time() does, in a process of the program `moejit` that is
// started for this kernel (serve_compile_worker()). `program` is its path, or its name on the PATH.
// The time is the compiler's only. Errors: NVRTC's there. kCompilerFault if the process crashed,
// could not be started or is of another version; kInterrupted if `stop` is requested, which ends
// the process.
Result<CompiledKernel> compile_in_worker(const KernelSource& source, const std::string& program,
                                         const std::stop_token& stop);

}  // namespace moejit::compiler
