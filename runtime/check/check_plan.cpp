// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/check_plan.h"

#include "runtime/check/kernel_checks.h"

#include <algorithm>
#include <variant>

namespace moejit::check {

using runtime::TensorMap;

using compiler::CallPlan;
using compiler::CallStep;
using compiler::KernelPlan;

namespace {

// Returns whether one of the named calls runs the kernel.
bool is_run(const compiler::Plan& plan, std::span<const std::string_view> calls,
            std::size_t kernel) {
  return std::ranges::any_of(plan.calls, [&](const CallPlan& call) {
    return std::ranges::count(calls, call.name) > 0 &&
           std::ranges::count(call.steps, CallStep{.index = kernel}) > 0;
  });
}

}  // namespace

std::vector<TensorCheck> check_plan(const compiler::Plan& plan,
                                    std::span<const std::string_view> calls,
                                    const TensorMap& inputs, const TensorMap& results,
                                    std::string_view written) {
  CheckList list;
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    const KernelPlan& kernel = plan.kernels[i];
    if (!is_run(plan, calls, i)) continue;
    if (!written.empty() && !writes(kernel, written)) continue;
    const KernelTensors tensors(plan, kernel, inputs, results);
    std::visit([&](const auto& spec) { check_kernel(spec, tensors, list); }, kernel.spec);
    const bool is_route = std::holds_alternative<compiler::RouteSpec>(kernel.spec) ||
                          std::holds_alternative<compiler::RouteMapSpec>(kernel.spec) ||
                          std::holds_alternative<compiler::SplitRowsSpec>(kernel.spec) ||
                          std::holds_alternative<compiler::RoutePermuteSpec>(kernel.spec);
    if (is_route && !list.all_passed()) break;
  }
  return list.take();
}

}  // namespace moejit::check
