// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/tensors/host_tensor.h"
#include "compiler/compiler.h"

namespace moejit::cli {

// Counts, on the host, the rows that the routing of `inputs` gives the kernels of a call.
compiler::CallRows count_call_rows(const compiler::Layer& layer, const TensorMap& inputs);

}  // namespace moejit::cli
