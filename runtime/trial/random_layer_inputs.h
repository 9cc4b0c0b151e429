// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/host_tensor.h"
#include "runtime/trial/inputs.h"

#include <cstdint>

namespace moejit::trial {

// The functions below make seeded inputs like a trained model's, the same bits on every machine and
// target. Activations have outlier channels, tokens and elements. Rows of weights differ in size.
// Probabilities sum to 1.
//
// A rank that holds r = local / all of the experts sees the tokens of all ranks, as planning takes
// it. A share r of their K choices is local on average, and the others are -1, so that many tokens
// have no expert here. If all experts are local, one choice in 64 is -1 all the same. If the layer
// ignores foreign experts, every other -1 is the id of a foreign expert instead.

// Returns topk_ids [T, K] alone, equal to the topk_ids of random_tokens().
runtime::HostTensor random_topk_ids(const compiler::Layer& layer, int64_t tokens,
                                    const RandomInputs& random);

// Returns x, topk_ids and topk_probs; of grouped input x, tokens_per_expert and probs. One row in
// 64 has no expert there. With a router returns x and random_logits().
runtime::TensorMap random_tokens(const compiler::Layer& layer, int64_t tokens,
                                 const RandomInputs& random);

// Returns dy, the gradient of y, and the coefficients of a router's losses.
runtime::TensorMap random_gradient(const compiler::Layer& layer, int64_t tokens, uint64_t seed);

// Returns w1 and w2 for this number of experts.
runtime::TensorMap random_weights_of(const compiler::Layer& layer, int64_t experts, uint64_t seed);

}  // namespace moejit::trial
