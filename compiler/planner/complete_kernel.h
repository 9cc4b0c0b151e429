// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"

namespace moejit::compiler {

// Gives a kernel whose spec, arguments and tensor maps are set what its launch needs, and counts
// its work: for calls within the bounds, of which the largest has max_tokens tokens with all their
// choices here.
void complete_kernel(KernelPlan& kernel, const CallBounds& bounds);

// Returns the bounds of calls over no tokens but so many rows, or columns, in groups.
CallBounds bounds_of_rows(int64_t rows, int64_t groups, int32_t splits_alignment = 1);

}  // namespace moejit::compiler
