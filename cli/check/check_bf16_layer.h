// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/check/layer_results.h"

#include <vector>

namespace moejit::cli {

// check_forward() and check_backward() of a layer that quantises nothing. Bit-exact: the route,
// permuted rows of x and dy, y, dx and dprobs. Within derived bounds: every GEMM, dprobs_blocks,
// and act and dh1, whose sigmoid may be off by 2^-17.
std::vector<TensorCheck> check_bf16_forward(const compiler::Layer& layer, const TensorMap& inputs,
                                            const TensorMap& results);
std::vector<TensorCheck> check_bf16_backward(const compiler::Layer& layer, const TensorMap& inputs,
                                             const TensorMap& results);

}  // namespace moejit::cli
