// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/host_tensor.h"

#include <cstdint>
#include <span>
#include <vector>

namespace moejit::trial {

// Parts the inputs of one rank with all tokens among the ranks of a group: rank r gets the next
// tokens[r] rows of x, topk_ids, topk_probs and dy, and the r-th part of the experts' weights and
// biases. `tokens` add up to the rows of x.
std::vector<runtime::TensorMap> split_inputs(const compiler::Layer& layer,
                                             const runtime::TensorMap& inputs,
                                             std::span<const int64_t> tokens);

// Returns `count` slices of a tensor's first dimension, from `first` on.
runtime::HostTensor slice_rows(const runtime::HostTensor& tensor, int64_t first, int64_t count);

}  // namespace moejit::trial
