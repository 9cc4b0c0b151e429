// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/tensors/host_tensor.h"
#include "compiler/layer.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::cli {

// Parts the inputs of one rank with all tokens among the ranks of a group: rank r gets the next
// tokens[r] rows of x, topk_ids, topk_probs and dy, and the r-th part of the experts' weights and
// biases. `tokens` add up to the rows of x.
std::vector<TensorMap> split_inputs(const compiler::Layer& layer, const TensorMap& inputs,
                                    std::span<const int64_t> tokens);

// Returns `count` slices of a tensor's first dimension, from `first` on.
HostTensor slice_rows(const HostTensor& tensor, int64_t first, int64_t count);

}  // namespace moejit::cli
