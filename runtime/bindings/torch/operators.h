// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/torch_functions.h"

#include <array>

namespace moejit::torch {

// An operator of the namespace `moejit`: its schema, and its kernel for CPU and CUDA tensors.
// Tensors come first and the layer's text last: DTensor of torch 2.11 takes nothing else. No
// argument is optional, since torch passes optionals differently from 2.13 on: absent biases, and
// everything else that is absent, are tensors without elements.
struct Operator {
  const char* name;
  const char* schema;
  Kernel kernel;
};

extern const std::array<Operator, 5> kOperators;

}  // namespace moejit::torch
