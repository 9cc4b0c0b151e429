// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/support/error.h"

namespace moejit::compiler {

// Checks that operands, scales, accumulation and epilogue of a problem go together. Error
// kUnsupported: the message says which do not go together, the hint which do.
Result<void> check_grouped_gemm(const GroupedGemmSpec& problem);

}  // namespace moejit::compiler
