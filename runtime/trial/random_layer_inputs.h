// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/layer.h"
#include "runtime/host_tensor.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace moejit::trial {

// How often random tokens choose each expert.
enum class RandomRouting {
  kSkewed,   // popularity falls like 1 / rank over a random order of the experts
  kUniform,  // all experts are equally popular
};

constexpr std::string_view to_string(RandomRouting routing) {
  return routing == RandomRouting::kUniform ? "uniform" : "skewed";
}

// Returns ", uniform routing" for the first line of a report. Empty for the usual routing, or if
// nothing is routed at random.
constexpr std::string_view routing_text(std::optional<RandomRouting> routing) {
  return routing == RandomRouting::kUniform ? ", uniform routing" : "";
}

// The functions below make seeded inputs like a trained model's, the same bits on every machine and
// target. Activations have outlier channels, tokens and elements. Rows of weights differ in size.
// The popularity of experts falls like 1 / rank, or is uniform. Probabilities sum to 1.
//
// A rank that holds r = local / all of the experts sees only tokens with at least one expert here.
// A share of r / (1 - (1 - r)^K) of their K choices is local on average; the others are -1. If all
// experts are local, one choice in 64 is -1 all the same. If the layer ignores foreign experts,
// every other -1 is the id of a foreign expert instead.

// Returns topk_ids [T, K] alone, equal to the topk_ids of random_tokens().
runtime::HostTensor random_topk_ids(const compiler::Layer& layer, int64_t tokens, uint64_t seed,
                                    RandomRouting routing = RandomRouting::kSkewed);

// Returns x, topk_ids and topk_probs; of grouped input x, tokens_per_expert and probs. As many rows
// have no expert there as tokens choose none.
runtime::TensorMap random_tokens(const compiler::Layer& layer, int64_t tokens, uint64_t seed,
                                 RandomRouting routing = RandomRouting::kSkewed);

// Returns dy, the gradient of y.
runtime::TensorMap random_gradient(const compiler::Layer& layer, int64_t tokens, uint64_t seed);

// Returns w1 and w2 for this number of experts.
runtime::TensorMap random_weights_of(const compiler::Layer& layer, int64_t experts, uint64_t seed);

// Returns all inputs of a measured call: forward, or also backward if the layer has a backward
// pass. Experts beyond the first four have copies of their weights. A kernel's time does not depend
// on that, and distinct weights for all of DeepSeek-V3's experts would need 22 GB of host memory.
runtime::TensorMap measuring_inputs(const compiler::Layer& layer, int64_t tokens, uint64_t seed,
                                    RandomRouting routing = RandomRouting::kSkewed);

// Returns all inputs, made as in measuring_inputs(), of a measured call over `slots` tokens. The
// layer is one that layer_of_experts() makes of a group's layer. The tokens come from all ranks, so
// many have no expert here. On average, a share of local / all experts of their K choices is local.
runtime::TensorMap slot_inputs(const compiler::Layer& layer, int64_t slots, uint64_t seed);

}  // namespace moejit::trial
