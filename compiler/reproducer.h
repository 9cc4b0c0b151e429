// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"
#include "compiler/support/error.h"

#include <string>

namespace moejit::compiler {

// Writes what somebody else needs to see the same failure of a compiler, into <folder>/<entry>:
//
//   kernel.cu and the headers that it includes, below their include names
//   reproducer.json   version of moejit, target, entry, compiler, versions, build ids and options,
//                     and the error with the compiler's log
//
// and adds to the error where it is, or why it could not be written. Folders that are missing are
// made; what an earlier failure of the kernel left there is written over.
void add_reproducer(const KernelSource& source, const std::string& folder, Error& error);

}  // namespace moejit::compiler
