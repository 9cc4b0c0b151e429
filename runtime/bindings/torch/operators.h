// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/torch_functions.h"

#include <array>

namespace moejit::torch {

// An operator of the namespace `moejit`: its schema, and its kernel for CPU and CUDA tensors.
// Tensors come first and the plan's text last: DTensor of torch 2.11 takes nothing else. No
// argument is optional, since torch passes optionals differently from 2.13 on: absent biases, and
// everything else that is absent, are tensors without elements.
struct Operator {
  const char* name;
  const char* schema;
  Kernel kernel;
};

// The operators of a whole layer. `infer` is `forward` without the block "saved", for layers that
// have no backward pass. `quantize_forward` is `quantize` and `forward` in one, since torch takes
// as long for a call as the operator itself. Its result "quantized" has no elements unless backward
// reads that block. `renew_` is `quantize_`, but leaves blocks alone whose weights have not
// changed, for layers with "weight_checks". `renew_infer` is `renew_` and `infer`. Overloads
// "with_state" take the state of recipes whose scales follow from the steps before.
extern const std::array<Operator, 15> kOperators;
// The operator that moves such a state on by a step.
extern const std::array<Operator, 1> kScalesOperators;
// The operators of backward in two halves, for layers with "backward_halves". The weights half
// takes the arguments of the data half again and the deferred block. If the layer has "dx" or
// "dprobs", it reads only "saved" and T of these. So "dy" may be [T, 0] and the others without
// elements.
extern const std::array<Operator, 4> kHalvesOperators;
// The operators of layers of a group; `quantize` and `quantize_` serve them too. All calls of a
// group are one order of work, the same on all ranks. Each call writes the group's tensor `order`,
// as torch sees it. So no graph reorders calls, leaves one out, or makes one of two. The content of
// `order` means nothing. Backward takes topk_ids of its forward call again, with the same T.
extern const std::array<Operator, 6> kGroupOperators;
// The operator that runs any operation with outputs. It has an overload for each number of outputs,
// since a result costs time even if it is absent. Its inputs are the operation's in the plan's
// order, without optional ones, and then any tensors. Its results are the outputs in the same
// order.
extern const std::array<Operator, 6> kOperationOperators;

}  // namespace moejit::torch
