// SPDX-License-Identifier: Apache-2.0
#include "tests/tested_target.h"

#include <cstdlib>

namespace moejit::testing {

std::string_view tested_target() { return MOEJIT_TESTED_TARGET; }

std::string tested_target_name() {
  const char* const asked = std::getenv("MOEJIT_TEST_TARGET");  // NOLINT(concurrency-mt-unsafe)
  const bool is_of_kind = asked != nullptr && std::string_view(asked).starts_with(tested_target());
  return std::string(is_of_kind ? asked : tested_target());
}

compiler::Target tested_plan_target() {
  return compiler::parse_target(tested_target_name()).value();
}

}  // namespace moejit::testing
