// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"
#include "compiler/support/error.h"

#include <string>

namespace moejit::compiler {

// Writes what others need to see the same failure of a compiler, into <folder>/<entry>:
//
//   kernel.cu and the headers that it includes, below their include names
//   reproducer.json   version of moejit, target, entry, compiler, versions, build ids and options,
//                     and the error with the compiler's log
//
// It adds to the error's hint where they are, or why they could not be written. Missing folders are
// made; files of an earlier failure of the kernel are overwritten.
void add_reproducer(const KernelSource& source, const std::string& folder, Error& error);

}  // namespace moejit::compiler
