// SPDX-License-Identifier: Apache-2.0
#include "runtime/check/check_plan.h"

#include "runtime/check/kernel_checks.h"

#include <algorithm>
#include <variant>

namespace moejit::check {

using runtime::TensorMap;

using compiler::GradientMode;
using compiler::KernelPlan;

namespace {

std::vector<TensorCheck> check_kernels(const compiler::Plan& plan,
                                       std::span<const compiler::Phase> phases,
                                       std::string_view written, const TensorMap& inputs,
                                       const TensorMap& results) {
  CheckList list;
  for (const KernelPlan& kernel : plan.kernels) {
    if (std::ranges::count(phases, kernel.phase) == 0) continue;
    if (kernel.gradient_mode == GradientMode::kAdd) continue;
    if (!written.empty() && !writes(kernel, written)) continue;
    const KernelTensors tensors(plan, kernel, inputs, results);
    std::visit([&](const auto& spec) { check_kernel(spec, tensors, list); }, kernel.spec);
    const bool is_route = std::holds_alternative<compiler::RouteSpec>(kernel.spec);
    if (is_route && !list.all_passed()) break;
  }
  return list.take();
}

}  // namespace

std::vector<TensorCheck> check_plan(const compiler::Plan& plan,
                                    std::span<const compiler::Phase> phases,
                                    const TensorMap& inputs, const TensorMap& results) {
  return check_kernels(plan, phases, {}, inputs, results);
}

std::vector<TensorCheck> check_writers(const compiler::Plan& plan,
                                       std::span<const compiler::Phase> phases,
                                       std::string_view tensor, const TensorMap& inputs,
                                       const TensorMap& results) {
  return check_kernels(plan, phases, tensor, inputs, results);
}

}  // namespace moejit::check
