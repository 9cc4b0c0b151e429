// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/tensors/host_tensor.h"
#include "compiler/compiler.h"

namespace moejit::cli {

// What the routing of `inputs` gives the kernels of a call to do, counted on the host.
compiler::CallRows count_call_rows(const compiler::Layer& layer, const TensorMap& inputs);

}  // namespace moejit::cli
