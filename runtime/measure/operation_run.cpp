// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/operation_run.h"

#include "compiler/compiler.h"

#include <algorithm>

namespace moejit::measure {

using compiler::OperationDescription;
using compiler::Plan;
using compiler::TensorPlan;
using runtime::NamedMemory;

Result<void> run_operation(const OperationDescription& operation, runtime::Engine& engine,
                           runtime::Device& device,
                           std::initializer_list<const NamedMemory*> tensors) {
  MOEJIT_TRY_ASSIGN(const Plan plan, plan_operation(operation, device.target()));
  MOEJIT_TRY_ASSIGN(const auto prepared, runtime::PreparedPlan::prepare(plan, engine, device));
  std::vector<std::vector<int64_t>> shapes(plan.tensors.size());
  std::vector<runtime::TensorRef> refs;
  for (std::size_t slot = 0; slot < shapes.size(); ++slot) {
    const TensorPlan& tensor = plan.tensors[slot];
    const auto found = std::ranges::find_if(
        tensors, [&](const NamedMemory* memory) { return memory->name == tensor.name; });
    if (found == tensors.end()) continue;
    for (const compiler::Dim& dim : tensor.shape) shapes[slot].push_back(dim.value);
    refs.push_back({(*found)->name, tensor.dtype, shapes[slot], (*found)->address()});
  }
  MOEJIT_TRY(prepared->call("run", refs, {}, nullptr));
  return device.synchronize(nullptr);
}

Result<compiler::KernelSource> source_of(const OperationDescription& operation,
                                         const compiler::Target& target) {
  MOEJIT_TRY_ASSIGN(const Plan plan, plan_operation(operation, target));
  return emit_kernel(plan.kernels.front(), target);
}

}  // namespace moejit::measure
