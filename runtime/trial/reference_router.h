// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/router.h"
#include "runtime/reference/router.h"

#include <cstdint>

namespace moejit::trial {

// Returns the router of the reference with a kernel's formula, over so many experts, zero experts
// included.
reference::Router reference_router(const compiler::RouterFormula& formula, int64_t experts,
                                   int64_t top_k);

}  // namespace moejit::trial
