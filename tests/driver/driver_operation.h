// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/operation.h"
#include "runtime/prepared_plan.h"

#include <deque>
#include <vector>

namespace moejit::testing {

// The operations of docs/examples/operations.
std::vector<compiler::OperationDescription> example_operations();

// Memory of a device for all tensors of an operation's plan, each at its bound.
class OperationTensors {
 public:
  OperationTensors(const compiler::Plan& plan, runtime::Device& device);
  ~OperationTensors();
  OperationTensors(const OperationTensors&) = delete;
  OperationTensors& operator=(const OperationTensors&) = delete;

  std::span<const runtime::TensorRef> refs() const { return refs_; }

 private:
  runtime::Device& device_;
  std::deque<std::vector<int64_t>> shapes_;
  std::vector<runtime::TensorRef> refs_;
};

}  // namespace moejit::testing
