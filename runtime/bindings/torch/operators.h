// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/torch/torch_functions.h"

#include <array>

namespace moejit::torch {

// An operator of the namespace `moejit`: its schema, and its kernel for CPU and CUDA tensors.
struct Operator {
  const char* name;
  const char* schema;
  Kernel kernel;
};

// The two operators make any call of a plan, by its name in moejit_call_info. `tensors` are all
// that the call only reads, in the order of the plan. The blocks "quantized" and
// "quantized_colwise" stand in place of their tensors, and the blocks "saved" and "deferred" are
// last. A tensor without elements stands for one that the call may leave out.
//
// `call` makes what the call writes and returns it, in the same order and without what may be left
// out. What the call also reads begins as zeros. `call_` writes into `written`, which are all in
// the same order. It is apart because torch.compile takes no operator that writes a list and
// returns one. A call of all ranks of a group may have one tensor more in `written`, which no
// kernel touches. As torch sees it, all such calls write it. So no graph reorders them, leaves one
// out, or makes one of two.
extern const std::array<Operator, 2> kOperators;

}  // namespace moejit::torch
