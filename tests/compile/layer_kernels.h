// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace moejit::testing {

// Returns the source with assertions behind it that the kernel is launched as the host believes.
compiler::KernelSource with_launch_asserted(compiler::KernelSource source,
                                            const compiler::LaunchShape& launch);

// The kernels of a layer, by entry; each is the kernel's source with assertions that its launch is
// what the host takes it for.
using LayerKernels = std::map<std::string, compiler::KernelSource>;

// Plans a description with and without its intermediates, checks that what the plans launch is
// within the device's limits, and emits their kernels for cuda:sm_90a. Errors: those of parser,
// planner and emitter; kInternal for a plan beyond a limit.
Result<LayerKernels> layer_kernels(const std::string& json);

// What came of compiling a kernel.
struct CompileOutcome {
  // A sentence of what is wrong: it does not compile, or the assembler made it slow. Else empty.
  std::string complaint;
  double cpu_seconds = 0;
};
CompileOutcome compile(const compiler::KernelSource& source);

// Calls task(0) to task(count - 1), each once, on as many threads as the process has cores.
void for_each_in_parallel(std::size_t count, const std::function<void(std::size_t)>& task);

}  // namespace moejit::testing
