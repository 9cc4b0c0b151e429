// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/support/json_view.h"

namespace moejit::compiler {

// Refuses options of recipes that other libraries have and no target of this version can do. These
// are GEMMs in a microscaling format itself ("native_gemm"), "random_hadamard_transform" and
// "stochastic_rounding". Errors: kUnsupported where one is given.
Result<void> refuse_options(const JsonView& root);

}  // namespace moejit::compiler
