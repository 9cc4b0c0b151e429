// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/target.h"

#include <string>
#include <string_view>

namespace moejit::testing {

// Returns the kind of target that this executable tests, "sim" or "cuda":
// moejit_add_target_tests() of tests/CMakeLists.txt makes both of the same objects.
std::string_view tested_target();

// Returns the name of the target whose kernels suites of layers run: what $MOEJIT_TEST_TARGET says
// ("cuda:sm_90a-mma", "sim:sm_120f"), or tested_target() where that is unset or of the other kind.
// "cuda" is the GPU's own.
std::string tested_target_name();

// Returns the target of that name; of "cuda", the target that plans without a device have.
compiler::Target tested_plan_target();

}  // namespace moejit::testing
