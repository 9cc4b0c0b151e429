// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/operation.h"
#include "runtime/device_memory.h"
#include "runtime/prepared_plan.h"

#include <initializer_list>
#include <memory>
#include <vector>

namespace moejit::measure {

// An operation that is ready to run on tensors in device memory, each as large as its bound. Device
// and memory must live longer.
class OperationRun {
 public:
  // Plans, compiles and loads the operation. Memory in `tensors` has the name of the operation's
  // tensor that it holds; memory with no such name is ignored. Errors: of the planner, the
  // compiler, the cache, the device.
  static Result<OperationRun> create(const compiler::OperationDescription& operation,
                                     runtime::Engine& engine, runtime::Device& device,
                                     std::initializer_list<const runtime::NamedMemory*> tensors,
                                     const compiler::PlanOptions& options = {});

  const compiler::KernelPlan& kernel() const { return prepared_->plan().kernels.front(); }

  // Queues one launch on the default stream.
  Result<void> launch() { return prepared_->call("run", refs_, {}, nullptr); }

 private:
  std::unique_ptr<runtime::PreparedPlan> prepared_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<runtime::TensorRef> refs_;
};

// Runs an operation and waits for its end, so its tensors may be freed afterwards.
Result<void> run_operation(const compiler::OperationDescription& operation, runtime::Engine& engine,
                           runtime::Device& device,
                           std::initializer_list<const runtime::NamedMemory*> tensors);

// Returns the source of an operation's kernel.
Result<compiler::KernelSource> source_of(const compiler::OperationDescription& operation,
                                         const compiler::Target& target);

}  // namespace moejit::measure
