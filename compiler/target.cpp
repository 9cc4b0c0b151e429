// SPDX-License-Identifier: Apache-2.0
#include "compiler/target.h"

#include "compiler/support/json_document.h"

#include <fmt/core.h>

namespace moejit::compiler {

Result<Target> parse_target(std::string_view name) {
  if (name == "cuda" || name == "cuda:sm_90a") return Target{};
  if (name == "sim") return Target{.kind = TargetKind::kSim, .arch = "host"};
  return fail(Stage::kPlan, ErrorCode::kInvalidValue,
              fmt::format("unknown target {}, wanted cuda:sm_90a or sim", quote_for_message(name)),
              name.starts_with("cuda")
                  ? "kernels are for Hopper GPUs (H100, H200, H20) alone; sim runs on any CPU"
                  : "cuda is short for cuda:sm_90a, a Hopper GPU; sim is the simulator on the CPU");
}

std::string to_string(const Target& target) {
  return target.kind == TargetKind::kSim ? "sim" : "cuda:" + target.arch;
}

}  // namespace moejit::compiler
