// SPDX-License-Identifier: Apache-2.0
#include "tests/tested_target.h"

namespace moejit::testing {

std::string_view tested_target() { return MOEJIT_TESTED_TARGET; }

}  // namespace moejit::testing
