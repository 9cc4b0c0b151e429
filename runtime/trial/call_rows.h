// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "runtime/host_tensor.h"

namespace moejit::trial {

// Counts, on the host, the rows that the routing of `inputs` gives the kernels of a call.
compiler::CallRows count_call_rows(const compiler::Layer& layer, const runtime::TensorMap& inputs);

}  // namespace moejit::trial
