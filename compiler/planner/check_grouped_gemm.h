// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "compiler/support/error.h"

namespace moejit::compiler {

// Whether operands, scales, accumulation and epilogue of a problem go together. Errors: they do not
// (kUnsupported; the message says which, the hint what does).
Result<void> check_grouped_gemm(const GroupedGemmSpec& problem);

}  // namespace moejit::compiler
