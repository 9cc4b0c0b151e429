// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/group_plan.h"
#include "runtime/host_tensor.h"
#include "runtime/trial/layer_inputs.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moejit::trial {

// Returns "rank1.": what the names of a rank's tensors begin with in files of a group.
std::string rank_prefix(std::size_t rank);

// Loads the inputs of all ranks of a group, whose plans are given in their order. A file has the
// tensors of each rank under "rank0.x", "rank1.x", ..., each rank with a T of its own, or it has
// "x" of all tokens and "w1" of all experts, as for one rank, which are parted among the ranks as
// evenly as possible. So are random data, of `options.tokens` for each rank. Experts of a
// checkpoint are all read. Errors: those of load_inputs(), and kMissingTensor or kTensorMismatch
// for a file in neither form.
Result<std::vector<runtime::TensorMap>> load_group_inputs(
    std::span<const compiler::GroupPlan> plans, const InputOptions& options);

// Parts the inputs of one rank with all tokens among the ranks of a group: rank r gets the next
// tokens[r] rows of x, topk_ids, topk_probs and dy, and the r-th part of the experts' weights and
// biases. `tokens` add up to the rows of x.
std::vector<runtime::TensorMap> split_inputs(const compiler::Layer& layer,
                                             const runtime::TensorMap& inputs,
                                             std::span<const int64_t> tokens);

// Does the opposite, for inputs without states.
runtime::TensorMap join_inputs(std::span<const runtime::TensorMap> ranks);

// Returns `count` slices of a tensor's first dimension, from `first` on.
runtime::HostTensor slice_rows(const runtime::HostTensor& tensor, int64_t first, int64_t count);

}  // namespace moejit::trial
