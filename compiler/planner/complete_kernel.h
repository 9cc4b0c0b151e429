// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"

namespace moejit::compiler {

// Sets what the launch of a kernel needs and counts its work; spec, arguments and tensor maps are
// set already. The launch suits calls within the bounds. The work is the work of a call over
// max_tokens tokens with all their choices on this rank.
void complete_kernel(KernelPlan& kernel, const CallBounds& bounds);

// Returns the bounds of calls over `rows` permuted rows, or columns, in `groups` groups, as if each
// row were a token with one choice.
CallBounds bounds_of_rows(int64_t rows, int64_t groups, int32_t splits_alignment = 1);

}  // namespace moejit::compiler
