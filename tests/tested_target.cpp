// SPDX-License-Identifier: Apache-2.0
#include "tests/tested_target.h"

#include <cstdlib>
#include <optional>

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

Result<std::unique_ptr<runtime::Device>> open_tested_device() {
  const std::string name = tested_target_name();
  MOEJIT_TRY_ASSIGN(const compiler::Target target, compiler::parse_target(name));
  if (target.kind == compiler::TargetKind::kSim) return runtime::open_simulator({.target = target});
  return runtime::open_cuda_device(runtime::kCurrentGpu,
                                   name == "cuda" ? std::nullopt : std::optional(target));
}

}  // namespace moejit::testing
