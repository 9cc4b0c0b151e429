// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/planned_tensor.h"

#include <string_view>
#include <vector>

struct moejit_plan;

namespace moejit::torch {

// An operation that is ready for calls on one device, and what the operator needs of its plan.
struct ReadyOperation {
  moejit_plan* operation = nullptr;
  moejit_device* device = nullptr;
  // Both in the plan's order, without optional ones.
  std::vector<PlannedTensor> inputs;
  std::vector<PlannedTensor> outputs;
};

// Returns the operation of the operator's last argument on the device of its tensors, as
// ready_layer() does with layers.
const ReadyOperation& ready_operation(std::string_view text, DLDevice device);

}  // namespace moejit::torch
