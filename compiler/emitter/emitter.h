// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/kernel_source.h"
#include "compiler/plan.h"
#include "compiler/support/error.h"

namespace moejit::compiler {

// Returns the text of a kernel: a comment with its spec, its includes, its constants by name, the
// kernel type, and the entry. The kernel type is composed of the templates. The text depends only
// on the operation's name and the spec. Error kInternal: the operation's name cannot be part of an
// identifier.
Result<KernelSource> emit(const KernelPlan& kernel, const Target& target);

}  // namespace moejit::compiler
