// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/operation_run.h"

#include "compiler/compiler.h"

#include <algorithm>

namespace moejit::measure {

using compiler::OperationDescription;
using compiler::Plan;
using compiler::TensorPlan;
using runtime::NamedMemory;

Result<OperationRun> OperationRun::create(const OperationDescription& operation,
                                          runtime::Engine& engine, runtime::Device& device,
                                          std::initializer_list<const NamedMemory*> tensors,
                                          const compiler::PlanOptions& options) {
  MOEJIT_TRY_ASSIGN(Plan planned, plan_operation(operation, device.target(), options));
  const auto plan = std::make_shared<const Plan>(std::move(planned));
  OperationRun run;
  MOEJIT_TRY_ASSIGN(run.prepared_, runtime::PreparedPlan::prepare(plan, engine, device));
  run.shapes_.reserve(plan->tensors.size());
  for (const TensorPlan& tensor : plan->tensors) {
    const auto found = std::ranges::find_if(
        tensors, [&](const NamedMemory* memory) { return memory->name == tensor.name; });
    if (found == tensors.end()) continue;
    std::vector<int64_t>& shape = run.shapes_.emplace_back();
    for (const compiler::Dim& dim : tensor.shape) shape.push_back(dim.value);
    run.refs_.push_back({(*found)->name, tensor.dtype, shape, (*found)->address()});
  }
  return run;
}

Result<void> run_operation(const OperationDescription& operation, runtime::Engine& engine,
                           runtime::Device& device,
                           std::initializer_list<const NamedMemory*> tensors) {
  MOEJIT_TRY_ASSIGN(OperationRun run, OperationRun::create(operation, engine, device, tensors));
  MOEJIT_TRY(run.launch());
  return device.synchronize(nullptr);
}

Result<compiler::KernelSource> source_of(const OperationDescription& operation,
                                         const compiler::Target& target) {
  MOEJIT_TRY_ASSIGN(const Plan plan, plan_operation(operation, target));
  return emit_kernel(plan.kernels.front(), target);
}

}  // namespace moejit::measure
