// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/check/tensor_check.h"
#include "cli/tensors/host_tensor.h"
#include "compiler/layer.h"

#include <vector>

namespace moejit::cli {

// Compares every tensor of a backward pass that overwrote dw1 and dw2 with the plain CPU reference,
// in the manner of check_forward(). Bit-exact: weights of both orientations, quantised and permuted
// dy, the transposed operands of wgrad, dx (from dx_permuted) and dprobs (from dprobs_blocks).
// Within derived bounds: dact, dx_permuted, dw1, dw2, dprobs_blocks. dh1_q: within one code of the
// reference, scales equal unless the amax is at a power-of-two step.
//
// `results` are those of check_forward() and all tensors of the backward pass. Of large weight
// gradients some rows and columns of every expert are compared.
std::vector<TensorCheck> check_backward(const compiler::Layer& layer, const TensorMap& inputs,
                                        const TensorMap& results);

}  // namespace moejit::cli
