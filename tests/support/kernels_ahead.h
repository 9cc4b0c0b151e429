// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_binary.h"
#include "compiler/kernel_source.h"
#include "compiler/plan.h"
#include "compiler/support/error.h"
#include "compiler/target.h"

#include <functional>
#include <memory>
#include <string_view>

// Suites whose cases compile a kernel here and there run twice: first in a child process in which
// every kernel is noted and fails, then, with the kernels compiled together, in earnest. Nothing
// that happens in the child is a result. A kernel that the child did not ask for is compiled alone.
namespace moejit::testing {

// Obtains a kernel from test_engine(). In the child it notes the source and fails.
Result<std::shared_ptr<const compiler::KernelBinary>> obtain_test_kernel(
    const compiler::KernelSource& source);

// In the child notes the kernels of a plan and fails; elsewhere notes only their headers. Is called
// before a plan is prepared.
Result<void> note_kernels_of(const compiler::Plan& plan);

// Writes which headers the kernels of this process include, directly, to kernel-headers/PROGRAM in
// the build folder, one a line. Is called after all cases passed; tests/changed.py reads it.
void record_headers();

// Calls `run_tests` in a child without output, and has test_engine() obtain the kernels that it
// asked for, all of this target. Does nothing if this program did so before with the same filter of
// cases, the same target and the same folder of kernels. Must be called before this process has
// threads.
void obtain_kernels_ahead(std::string_view filter, const compiler::Target& target,
                          const std::function<int()>& run_tests);

}  // namespace moejit::testing
