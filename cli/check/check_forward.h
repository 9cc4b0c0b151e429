// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/check/tensor_check.h"
#include "cli/tensors/host_tensor.h"
#include "compiler/layer.h"

#include <vector>

namespace moejit::cli {

// Compares every tensor of a forward pass with the plain CPU reference, one kernel at a time: each
// is judged on what the device itself gave it, so that a difference shows where it arises and
// nowhere else. Bit-exact: quantised x and weights, the route, permuted rows, y (from h2). h1 and
// h2: within the bound that follows from the accumulation length. act_q: within one code of the
// reference, scales equal unless the amax is at a power-of-two step.
//
// `inputs` are those of load_inputs(), `results` all intermediates and y, rows past offs[E] left
// out. Where a GEMM is too long for the CPU, evenly spread rows of every expert are compared; the
// verdict says how many.
std::vector<TensorCheck> check_forward(const compiler::Layer& layer, const TensorMap& inputs,
                                       const TensorMap& results);

}  // namespace moejit::cli
