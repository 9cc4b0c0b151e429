// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/bindings/graph/failure.h"
#include "runtime/bindings/torch/torch_functions.h"

namespace moejit::torch {

using namespace graph;  // plans, their calls and failures, which other bindings have too

// Throws if the function `name` of torch failed.
void check_torch(Code code, const char* name);

}  // namespace moejit::torch
