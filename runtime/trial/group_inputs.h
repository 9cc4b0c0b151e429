// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/host_tensor.h"
#include "runtime/trial/inputs.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moejit::trial {

// Returns the prefix of a rank's tensors in files of a group: "rank1.".
std::string rank_prefix(std::size_t rank);

// Loads the inputs of all ranks of a group, whose plans are given in their order. A file may have
// each rank's tensors under "rank0.x", "rank1.x", ..., each rank with a T of its own. Or it has "x"
// of all tokens and "w1" of all experts, as for one rank. These are split among the ranks as evenly
// as possible. Random data are split too; they have `options.tokens` for each rank. All experts of
// a checkpoint are read. Returns the errors of load_layer_inputs(), and kMissingTensor or
// kTensorMismatch for a file in neither form.
Result<std::vector<runtime::TensorMap>> load_group_inputs(std::span<const compiler::Plan> plans,
                                                          const InputOptions& options);

// Splits the inputs of one rank with all tokens among the ranks of a group. Rank r gets the next
// tokens[r] rows of x, logits, topk_ids, topk_probs, shared_probs and dy. It also gets the r-th
// part of the experts' weights and biases, and the whole weights and biases of the shared experts.
// It gets all of both if there are fewer than the ranks have experts. What a router reads of all
// experts, and adds to, is the same on all ranks. `tokens` add up to the rows of x.
std::vector<runtime::TensorMap> split_inputs(const compiler::Layer& layer,
                                             const runtime::TensorMap& inputs,
                                             std::span<const int64_t> tokens);

// Joins the inputs of all ranks to the inputs of one rank with all tokens. They must have no
// states. The shared experts come from the last rank.
CallInputs join_inputs(const compiler::Layer& layer, std::span<const CallInputs> ranks);

// Returns `count` slices of a tensor's first dimension, from `first` on.
runtime::HostTensor slice_rows(const runtime::HostTensor& tensor, int64_t first, int64_t count);

}  // namespace moejit::trial
