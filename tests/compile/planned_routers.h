// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/compile/planned_kernels.h"

namespace moejit::testing {

// Adds both kernels of routers: of few experts and many, with everything that a formula may have.
void add_routers(std::map<std::string, PlannedKernel>& all);

}  // namespace moejit::testing
