// SPDX-License-Identifier: Apache-2.0
#include "compiler/launch.h"
#include "compiler/planner/planner_steps.h"

#include <fmt/core.h>
#include <string>
#include <variant>

namespace moejit::compiler {
namespace {

// Returns what the instructions of a target lack for a kernel, or nothing.
std::string_view lack_of(const KernelSpec& spec, const TargetFeatures& features) {
  const bool copies_to_ranks = std::holds_alternative<DispatchRowsSpec>(spec) ||
                               std::holds_alternative<DispatchPermuteSpec>(spec) ||
                               std::holds_alternative<RouteDispatchPermuteSpec>(spec) ||
                               std::holds_alternative<CombineRowsSpec>(spec);
  if (copies_to_ranks && !features.has_bulk_copies)
    return "bulk copies, by which ranks write into each other's memory; \"transport\": \"nccl\" "
           "needs none";
  return {};
}

bool runs(const KernelPlan& kernel, const Target& target) {
  return lack_of(kernel.spec, target.features).empty() &&
         kernel.launch.shared_bytes <= target.shared_memory_bytes;
}

}  // namespace

Result<void> check_target(const KernelPlan& kernel, const Target& target,
                          std::string_view subject) {
  if (runs(kernel, target)) return {};
  std::string lack(lack_of(kernel.spec, target.features));
  if (lack.empty())
    lack = fmt::format("{} bytes of shared memory for a CTA, but {}", kernel.launch.shared_bytes,
                       target.shared_memory_bytes);
  std::string others;
  for (const Architecture& known : architectures())
    if (runs(kernel, known.target)) others += known.name + ", ";
  return fail(Stage::kPlan, ErrorCode::kUnsupported,
              fmt::format("{}: the kernel {} does not run on target {}, whose GPUs have no {}",
                          subject, kernel.operation, to_string(target), lack),
              fmt::format("it runs on {}sim", others));
}

}  // namespace moejit::compiler
