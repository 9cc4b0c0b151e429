// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace moejit::testing {

// Returns the target that this executable tests, "sim" or "cuda": moejit_add_target_tests() of
// tests/CMakeLists.txt makes both of the same objects.
std::string_view tested_target();

}  // namespace moejit::testing
